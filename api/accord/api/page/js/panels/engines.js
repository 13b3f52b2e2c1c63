// Engines: who takes part, with which version, in what state, and who has gone silent.
import { h } from "../dom.js";
import { NOTHING, count, plural, span, time } from "../format.js";
import { empty, panel } from "../parts.js";
import { table } from "../table.js";

// Whose news nobody has; who stopped said so.
export const silent = (engine) => engine.state === "silent" || engine.state === "unknown";

const STATES = {
  starting: "has heard nothing yet",
  fleet: "applies the fleet's coefficients",
  stale: "keeps the last coefficients: the service does not answer it",
  local: "refits by itself: it has heard nothing for long",
  observe: "measures only",
  frozen: "keeps what it has",
  stopped: "has ended",
  unknown: "says nothing that is understood",
};

const WATCH = ["local", "stale", "stopped"];

export function enginesPanel(detail, redraw) {
  const { engines } = detail;
  if (!engines.length) return panel("engines", "Engines", empty("No engine has reported for this pair."));
  const quiet = engines.filter(silent).length;
  const behind = engines.filter((engine) => lag(engine, detail) > 0).length;
  const lead = `${plural(engines.length, "engine")}: ${quiet ? `${count(quiet)} silent` : "all report"}, ${behind ? `${count(behind)} behind version ${detail.version}` : `all apply version ${detail.version}`}.`;
  return panel(
    "engines", "Engines", h("p", {}, lead),
    table("engine-table", "Engines of this pair", columns(detail), engines, { keyOf: (engine) => engine.engine, start: { column: "Silent for", down: true }, redraw }),
  );
}

const lag = (engine, detail) => (engine.version === null ? 0 : Math.max(0, detail.version - engine.version));
const text = (value) => (typeof value === "string" ? value : NOTHING);

const columns = (detail) => [
  { name: "Engine", sort: (engine) => engine.engine, cell: (engine) => engine.engine },
  {
    name: "State", sort: (engine) => engine.state,
    cell: (engine) => [
      silent(engine) ? h("span", { class: "badge bad" }, h("span", { "aria-hidden": "true" }, "\u2715"), ` ${engine.state}`) : h("span", { class: `badge ${WATCH.includes(engine.state) ? "watch" : "good"}` }, engine.state),
      h("div", { class: "note" }, engine.state === "silent" ? `last said ${text(engine.status.state)}` : (STATES[engine.state] ?? ""), engine.status.reason && typeof engine.status.reason === "string" ? `: ${engine.status.reason}` : ""),
    ],
  },
  {
    name: "Version", number: true, sort: (engine) => engine.version,
    cell: (engine) => [engine.version === null ? NOTHING : count(engine.version), lag(engine, detail) ? h("div", { class: "note warn" }, `${count(lag(engine, detail))} behind`) : null],
  },
  { name: "Silent for", number: true, sort: (engine) => engine.silent_ms ?? Number.MAX_SAFE_INTEGER, cell: (engine) => h("span", {}, span(engine.silent_ms), h("div", { class: "note" }, time(engine.seen_ms, { ago: false }))) },
  { name: "Labels sent", number: true, sort: (engine) => engine.status.labels?.sent, cell: (engine) => count(engine.status.labels?.sent) },
  { name: "Refuses", sort: (engine) => refusal(engine), cell: (engine) => refusal(engine) ?? "nothing" },
];

// Why an engine does not apply what is published, in its own words.
function refusal(engine) {
  const nack = engine.status.nack;
  if (!nack) return null;
  return typeof nack === "string" ? nack : `${text(nack.reason)}: ${text(nack.detail)}`;
}

export function influencePanel(detail, redraw) {
  const rows = detail.influence ?? [];
  if (!rows.length) return panel("influence", "Influence", empty("No engine has sent evidence recently."));
  const total = rows.reduce((sum, row) => sum + (row.labels ?? 0), 0) || 1;
  return panel(
    "influence", "Influence",
    h("p", { class: "note" }, "Whose labels make up what is known now. Labels that contradict every other engine's are set aside."),
    table(
      "influence-table", "Influence of engines",
      [
        { name: "Engine", sort: (row) => row.engine, cell: (row) => row.engine },
        { name: "Share", number: true, sort: (row) => row.labels, cell: (row) => h("span", { class: "bar" }, h("meter", { min: 0, max: 1, value: (row.labels ?? 0) / total, "aria-label": `share of ${row.engine}` }), ` ${(100 * (row.labels ?? 0) / total).toFixed(0)} %`) },
        { name: "Labels that count", number: true, sort: (row) => row.labels, cell: (row) => count(row.labels) },
        { name: "Set aside", number: true, sort: (row) => row.set_aside, cell: (row) => (row.set_aside ? h("span", { class: "warn" }, count(row.set_aside)) : "0") },
      ],
      rows, { keyOf: (row) => row.engine, start: { column: "Share", down: true }, redraw },
    ),
  );
}
