// Puts everything together: which view is shown, when it is read again, and what is said of the connection.
import { Connection } from "./connection.js";
import { Data } from "./data.js";
import { show } from "./dom.js";
import { Live } from "./live.js";
import { parse } from "./routes.js";
import { session } from "./session.js";
import { sessionView, signInView, whoAmI } from "./sign_in.js";
import * as pair from "./views/pair.js";
import * as pairs from "./views/pairs.js";
import * as unknown from "./views/unknown.js";
import * as workload from "./views/workload.js";

const VIEWS = { pairs, pair, workload, unknown };
const CALM_MS = 400; // news that come together are read together
const POLL_MS = { live: 10000, polling: 4000 };
const ROUNDS = 4; // a view may ask for more after it has seen the first answers

const main = document.getElementById("main");
const data = new Data();
const connection = new Connection();
let route = parse(location.hash);
let reading = null;
let again = false;
let timer = null;

const context = {
  get route() {
    return route;
  },
  get: (path) => data.get(path),
  redraw: draw,
  refresh,
  older: async (path) => {
    await data.older(path);
    draw();
  },
  say: (text) => {
    document.getElementById("said").textContent = text;
  },
};

function draw() {
  show(document.getElementById("session"), sessionView());
  show(document.getElementById("sign-in"), signInView());
  main.hidden = session.state.needed;
  if (session.state.needed) show(main);
  else show(main, VIEWS[route.name].render(context));
  connection.trouble(session.state.needed ? null : data.trouble);
}

// Reads what the view shows. A call while one is under way leads to one more after it.
async function refresh() {
  if (reading) {
    again = true;
    return reading.done;
  }
  const stop = new AbortController();
  reading = { stop };
  reading.done = read(stop.signal).finally(() => {
    reading = null;
    if (again) {
      again = false;
      refresh();
    } else plan();
  });
  return reading.done;
}

async function read(signal) {
  clearTimeout(timer);
  if (session.state.needed) return;
  let paths = [];
  try {
    for (let round = 0; round < ROUNDS; round++) {
      const wanted = VIEWS[route.name].paths(context);
      const missing = wanted.filter((path) => !paths.includes(path));
      if (!missing.length) break;
      paths = wanted;
      await data.read(missing, signal);
      if (signal.aborted) return;
      draw();
    }
    data.keep(paths);
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

function plan() {
  clearTimeout(timer);
  timer = setTimeout(refresh, connection.live ? POLL_MS.live : POLL_MS.polling);
}

function soon() {
  clearTimeout(timer);
  timer = setTimeout(refresh, CALM_MS);
}

function navigate() {
  const before = JSON.stringify(route);
  route = parse(location.hash);
  if (JSON.stringify(route) === before) return;
  reading?.stop.abort();
  show(main);
  draw();
  document.title = VIEWS[route.name].title(route);
  scrollTo(0, 0);
  // Who reads with a screen reader or goes on with Tab is at the new view's head, not at the link that is gone.
  main.focus({ preventScroll: true });
  context.say(document.title);
  refresh();
}

const live = new Live(
  (news) => {
    if (news.pair === undefined || route.pair === undefined || route.pair === news.pair) soon();
  },
  (state) => {
    const lost = connection.live && !state.live;
    connection.state(state);
    // What is shown may be old from here on: better to know at once.
    if (lost) soon();
    else if (!reading) plan();
  },
);

session.watch(() => {
  draw();
  if (session.state.needed) live.stop();
});
addEventListener("accord-signed-in", () => {
  live.start();
  refresh();
});
addEventListener("hashchange", navigate);
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && soon());
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

document.title = VIEWS[route.name].title(route);
draw();
live.start();
whoAmI();
refresh();
