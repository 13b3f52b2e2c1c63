// Every pair, and which of them needs a look.
import { pairPath } from "../api.js";
import { h } from "../dom.js";
import { NOTHING, count, fixed, plural, time } from "../format.js";
import { VERDICTS, judge, why } from "../judge.js";
import { badge, empty, notThere, pairHref, workloadHref } from "../parts.js";
import { silent } from "../panels/engines.js";
import { table } from "../table.js";

const LIST = "/v1/pairs?limit=1000";
const LOOKED_INTO = 30;

export const title = () => "Pairs · accord";

export function paths(context) {
  const listed = context.get(LIST)?.data?.pairs ?? [];
  return [LIST, ...listed.slice(0, LOOKED_INTO).map((pair) => pairPath(pair.id))];
}

export function render(context) {
  const list = context.get(LIST);
  const missing = notThere(list, "the list of pairs");
  if (missing) return [heading(), missing];
  const { pairs, unreadable } = list.data;
  if (!pairs.length && !unreadable.length) return [heading(), connect()];
  const rows = pairs.map((pair) => ({ pair, ...worst(context.get(pairPath(pair.id))?.data) }));
  return [
    heading(),
    summary(rows),
    h("div", { class: "panel" }, table("pairs", "Pairs of target and draft model", columns, rows, {
      keyOf: (row) => row.pair.id, start: { column: "Calibration", down: true }, redraw: context.redraw,
    })),
    pairs.length > LOOKED_INTO ? h("p", { class: "note" }, `Calibration is shown for the first ${LOOKED_INTO} pairs; open another to see its own.`) : null,
    unreadable.length ? h("p", { class: "error" }, `Stored records that cannot be read: ${unreadable.join(", ")}`) : null,
  ];
}

const heading = () => h("h1", {}, "Pairs");

function worst(detail) {
  if (!detail) return { detail: null, worst: null, verdict: null };
  let found = null;
  for (const workload of detail.workloads) {
    const verdict = judge(workload);
    const rank = [VERDICTS[verdict].order, workload.ece ?? 0];
    if (!found || rank[0] > found.rank[0] || (rank[0] === found.rank[0] && rank[1] > found.rank[1])) found = { workload, verdict, rank };
  }
  return { detail, worst: found?.workload ?? null, verdict: found?.verdict ?? null };
}

function summary(rows) {
  const bad = rows.filter((row) => row.verdict === "bad");
  if (!bad.length) return h("p", { class: "lead" }, rows.some((row) => row.verdict) ? "No workload is miscalibrated." : "Nothing was learnt yet.");
  return h(
    "p", { class: "lead" }, `Miscalibrated in ${plural(bad.length, "pair")}: `,
    bad.map((row, i) => [i ? ", " : "", h("a", { href: workloadHref(row.pair.id, row.worst.workload) }, row.worst.workload), ` of ${row.pair.identity.draft}`]), ".",
  );
}

const columns = [
  {
    name: "Pair", sort: ({ pair }) => pair.identity.target,
    cell: ({ pair }) => [
      h("a", { href: pairHref(pair.id), title: pair.id }, `${pair.identity.target} \u2190 ${pair.identity.draft}`),
      h("div", { class: "note" }, `${pair.identity.method}, ${pair.identity.draft_sample_method} drafts, K = ${pair.identity.k}`),
    ],
  },
  {
    name: "Calibration", title: "Of its worst workload", down: true, sort: ({ worst, verdict }) => (verdict ? VERDICTS[verdict].order + Math.min(worst.ece ?? 0, 0.99) : null),
    cell: ({ pair, worst, verdict }) =>
      verdict ? [badge(verdict, why(worst)), h("div", { class: "note" }, "worst: ", h("a", { href: workloadHref(pair.id, worst.workload) }, worst.workload), `, ECE ${fixed(worst.ece)}`)] : NOTHING,
  },
  { name: "Workloads", number: true, sort: ({ pair }) => pair.workloads, cell: ({ pair }) => count(pair.workloads) },
  { name: "Labels", number: true, title: "Labels ever learnt", sort: ({ detail }) => detail?.labels, cell: ({ detail }) => count(detail?.labels) },
  {
    name: "Engines", number: true, sort: ({ detail }) => detail?.engines.length,
    cell: ({ detail }) => {
      if (!detail) return NOTHING;
      const quiet = detail.engines.filter(silent).length;
      return [count(detail.engines.length), quiet ? h("div", { class: "note warn" }, `${count(quiet)} silent`) : null];
    },
  },
  { name: "Version", number: true, sort: ({ pair }) => pair.version, cell: ({ pair }) => (pair.version ? [count(pair.version), h("div", { class: "note" }, time(pair.published_ms))] : "nothing published") },
];

function connect() {
  return empty(
    "No engine has registered a pair yet. In an engine's environment install accord, set ",
    h("code", {}, "ACCORD_REDIS_URL"), " and ", h("code", {}, `ACCORD_API_URL=${location.origin}`),
    ", and start it with speculative decoding: the pair appears here with its first report. ",
    h("code", {}, "accord doctor"), " says what is missing when it does not.",
  );
}
