// What engines measured: milliseconds to draft and to verify, and where their table cannot be right.
import { chart } from "../charts.js";
import { h } from "../dom.js";
import { count, isNumber, plural, time } from "../format.js";
import { empty, notThere, panel } from "../parts.js";

export const costsPath = (base) => `${base}/costs`;
const SHOWN = 4;

export function costsPanel(context, path) {
  const resource = context.get(path);
  const missing = notThere(resource, "cost tables");
  if (missing) return panel("costs", "Cost curves", missing);
  const { engines: all, refused = [] } = resource.data;
  const engines = all.filter((engine) => engine.draft?.length || engine.verify?.length);
  if (!engines.length && !refused.length) return panel("costs", "Cost curves", empty("No engine has published its cost tables. An engine measures them when it starts with adaptive verification."));
  return panel(
    "costs", "Cost curves",
    engines.slice(0, SHOWN).map((engine, i) => curves(engine, i)),
    refused.length ? h("ul", { class: "error" }, refused.map((one) => h("li", {}, `${one.engine}: its tables cannot be used: ${one.message}`))) : null,
    engines.length > SHOWN ? h("p", { class: "note" }, `${plural(engines.length - SHOWN, "more engine")} not drawn: ${engines.slice(SHOWN, SHOWN + 20).map((engine) => engine.engine).join(", ")}`) : null,
  );
}

const TABLES = [
  ["verify", "Verifying", "Tokens in the batch"],
  ["draft", "Drafting", "Requests in the batch"],
];

function curves(engine, index) {
  const spots = engine.dead_spots ?? [];
  return h(
    "div", { key: `cost-${index}` },
    h("h3", {}, engine.engine),
    h("div", { class: "charts" }, TABLES.map(([name, title, xLabel]) => curve(engine[name], spots.filter((spot) => spot.table === name), { key: `cost-${name}-${index}`, title, xLabel }))),
    h("p", { class: "note" }, "Reported ", time(engine.seen_ms), spots.length ? `; ${plural(spots.length, "dead spot")}, shaded where it is dear:` : "; no dead spots."),
    spots.length ? h("ul", { class: "note" }, spots.slice(0, 20).map((spot) => h("li", {}, `${spot.table}, ${count(spot.tokens_from)} to ${count(spot.tokens_to)}: ${spot.message}`))) : null,
  );
}

function curve(table, spots, { key, title, xLabel }) {
  const points = (table ?? []).filter((point) => isNumber(point[0]) && isNumber(point[1]));
  if (!points.length) return null;
  return chart({
    key, title, note: "measured when the engine started", fromZero: true, digits: 3, x: points.map(([size]) => size), xLabel, yLabel: "Milliseconds",
    // A plateau is worth knowing, but nothing to stay away from.
    spans: spots.filter((spot) => spot.kind !== "plateau").map((spot) => ({ from: spot.tokens_from, to: spot.tokens_to })),
    series: [{ label: "ms", values: points.map(([, ms]) => ms), tone: "one", stepped: true }],
  });
}
