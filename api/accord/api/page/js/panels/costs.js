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
  const engines = resource.data.engines.filter((engine) => engine.draft?.length || engine.verify?.length);
  if (!engines.length) return panel("costs", "Cost curves", empty("No engine has published its cost tables. An engine measures them when it starts with adaptive verification."));
  return panel(
    "costs", "Cost curves",
    h("div", { class: "charts" }, engines.slice(0, SHOWN).map((engine, i) => curve(engine, i))),
    engines.length > SHOWN ? h("p", { class: "note" }, `${plural(engines.length - SHOWN, "more engine")} not drawn: ${engines.slice(SHOWN, SHOWN + 20).map((engine) => engine.engine).join(", ")}`) : null,
  );
}

function curve(engine, index) {
  const [draft, verify] = [points(engine.draft), points(engine.verify)];
  const x = [...new Set([...draft.keys(), ...verify.keys()])].sort((a, b) => a - b);
  const spots = engine.dead_spots ?? [];
  return h(
    "div", { key: `cost-${index}` },
    chart({
      key: `cost-chart-${index}`, title: engine.engine, note: "milliseconds by tokens in the batch; shaded: dead spots", fromZero: true, digits: 3,
      x, xLabel: "Tokens", yLabel: "ms", spans: spots.map((spot) => ({ from: spot.tokens_from, to: spot.tokens_to })),
      series: [
        { label: "Verify", values: x.map((tokens) => verify.get(tokens) ?? null), tone: "one" },
        { label: "Draft", values: x.map((tokens) => draft.get(tokens) ?? null), tone: "two", dash: [6, 4], hollow: true },
      ],
    }),
    h("p", { class: "note" }, "Reported ", time(engine.seen_ms), spots.length ? `; ${plural(spots.length, "dead spot")}:` : "; no dead spots."),
    spots.length ? h("ul", { class: "note" }, spots.map((spot) => h("li", {}, `${count(spot.tokens_from)} to ${count(spot.tokens_to)} tokens: ${spot.message}`))) : null,
  );
}

const points = (list) => new Map((list ?? []).filter((point) => Array.isArray(point) && isNumber(point[0]) && isNumber(point[1])).slice(0, 2000));
