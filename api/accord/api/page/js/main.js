// Puts everything together: which view is shown, when it is read again, and what is said of the connection.
import { Connection } from "./connection.js";
import { Data } from "./data.js";
import { show } from "./dom.js";
import { Live } from "./live.js";
import { MAX_KEPT } from "./paged.js";
import { parse } from "./routes.js";
import { session } from "./session.js";
import { sessionView, signInView, whoAmI } from "./sign_in.js";
import * as pair from "./views/pair.js";
import * as pairs from "./views/pairs.js";
import * as unknown from "./views/unknown.js";
import * as workload from "./views/workload.js";

const VIEWS = { pairs, pair, workload, unknown };
const CALM_MS = 400; // news that come together are read together
const APART_MS = 2000; // a learner may publish every second; reading everything as often would only cost
const POLL_MS = { live: 10000, polling: 4000 };
const ROUNDS = 4; // a view may ask for more after it has seen the first answers

const main = document.getElementById("main");
const data = new Data();
const connection = new Connection();
let route = parse(location.hash);
let reading = null;
let again = false;
let timer = null;
let readAt = 0;

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
  readAt = Date.now();
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
    await lookBack(signal);
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

// A view that cannot answer from what it has seen may want older entries of a list.
async function lookBack(signal) {
  for (;;) {
    const path = VIEWS[route.name].older?.(context);
    const before = path && data.get(path)?.data;
    if (!before?.next || before.entries.length >= MAX_KEPT) return;
    await data.older(path);
    if (signal.aborted || data.get(path)?.data === before) return;
    draw();
  }
}

function plan() {
  clearTimeout(timer);
  if (document.visibilityState === "hidden") return;
  timer = setTimeout(refresh, connection.live ? POLL_MS.live : POLL_MS.polling);
}

function soon() {
  clearTimeout(timer);
  timer = setTimeout(refresh, Math.max(CALM_MS, readAt + APART_MS - Date.now()));
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
    const before = connection.live;
    connection.state(state);
    // What is shown may be old from here on: better to know at once. Another failed attempt puts nothing off.
    if (before && !state.live) soon();
    else if (before !== state.live && !reading) plan();
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
// Browsers open six connections to a server at most, and a tab that nobody looks at must not hold one.
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "hidden") live.stop();
  else if (!session.state.needed) {
    live.start();
    soon();
  }
});
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

document.title = VIEWS[route.name].title(route);
draw();
live.start();
whoAmI();
refresh();
