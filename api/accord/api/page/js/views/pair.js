// One pair: its workloads, who takes part, what changed, and who changed it.
import { pairPath } from "../api.js";
import { h } from "../dom.js";
import { NOTHING, count, fixed, plural, share, span, time } from "../format.js";
import { VERDICTS, judge, since, why } from "../judge.js";
import { badge, empty, facts, notThere, overrideSentence, overrideText, panel, who, workloadHref } from "../parts.js";
import { auditPanel, auditPath } from "../panels/audit.js";
import { costsPanel, costsPath } from "../panels/costs.js";
import { enginesPanel, influencePanel } from "../panels/engines.js";
import { historyPanel, historyPath } from "../panels/history.js";
import { overridePanel, overridesPath, rollBack } from "../panels/override.js";
import { table } from "../table.js";
import { sinceWhen } from "./workload.js";

const PREVIEWED = 12;

export const title = ({ pair }) => `${pair} · accord`;

const tablePath = (base) => `${base}/coefficients`;

export function paths({ route }) {
  const base = pairPath(route.pair);
  return [base, historyPath(base), overridesPath(base), tablePath(base), auditPath(base), costsPath(base)];
}

// Goes back in history until it tells since when those that are off have been so.
export function older(context) {
  const base = pairPath(context.route.pair);
  const entries = context.get(historyPath(base))?.data?.entries ?? [];
  const off = (context.get(base)?.data?.workloads ?? []).filter((one) => ["bad", "watch"].includes(judge(one)));
  return off.some((one) => since(entries, one.workload, judge(one)).older) ? historyPath(base) : null;
}

export function render(context) {
  const { pair } = context.route;
  const base = pairPath(pair);
  const resource = context.get(base);
  const where = h("nav", { "aria-label": "Where you are" }, h("a", { href: "#/" }, "Pairs"), " › ", pair);
  if (resource?.state === "missing") return [where, h("h1", {}, "No such pair"), empty("No engine has registered a pair of this name.")];
  const missing = notThere(resource, "this pair");
  if (missing) return [where, h("h1", {}, pair), missing];
  const detail = resource.data;
  const { identity } = detail;
  return [
    where,
    h("h1", {}, `${identity.target} \u2190 ${identity.draft}`),
    facts(
      ["Method", `${identity.method}, ${identity.draft_sample_method} drafts`], ["K", count(identity.k)], ["Version in force", count(detail.version)],
      ["Published", time(detail.published_ms)], ["Labels learnt", count(detail.labels)],
      ["Learner", detail.lag.entries ? h("span", { class: detail.lag.ms > 10000 ? "warn" : null }, `${plural(detail.lag.entries, "report")} behind, ${span(detail.lag.ms)}`) : "has learnt everything"],
      ["Last refit", detail.fit_status ?? "none yet"],
    ),
    detail.override ? h("p", { class: "lead" }, "The whole pair is overridden: ", overrideSentence(detail.override)) : null,
    workloadsPanel(context, detail, base),
    historyPanel(context, historyPath(base), null, rollBack),
    enginesPanel(detail, context.redraw),
    influencePanel(detail, context.redraw),
    auditPanel(context, auditPath(base), pair, null),
    overridePanel(context, overrideSpec(context, detail, base), null),
    costsPanel(context, costsPath(base)),
  ];
}

function workloadsPanel(context, detail, base) {
  const { workloads } = detail;
  if (!workloads.length) return panel("workloads", "Workloads", empty("Nothing was learnt yet. Engines send their first evidence after about ten decode steps."));
  const overrides = new Map((context.get(overridesPath(base))?.data?.overrides ?? []).map((one) => [one.scope, one]));
  const entries = context.get(historyPath(base))?.data?.entries ?? [];
  const rows = workloads.map((workload) => ({ ...workload, verdict: judge(workload), override: overrides.get(workload.workload) ?? detail.override ?? null }));
  const bad = rows.filter((row) => row.verdict === "bad").sort((a, b) => b.ece - a.ece);
  return panel(
    "workloads", "Workloads",
    h("p", { class: "lead" }, bad.length ? [`${plural(bad.length, "workload")} of ${count(rows.length)} ${bad.length === 1 ? "is" : "are"} miscalibrated: `, bad.map((row, i) => [i ? ", " : "", h("a", { href: workloadHref(detail.id, row.workload) }, row.workload)]), "."] : "No workload is miscalibrated."),
    table("workload-table", "Workloads of this pair", columns(detail, entries), rows, { keyOf: (row) => row.workload, start: { column: "Calibration", down: true }, redraw: context.redraw }),
  );
}

const columns = (detail, entries) => [
  { name: "Workload", sort: (row) => row.workload, cell: (row) => h("a", { href: workloadHref(detail.id, row.workload) }, row.workload) },
  { name: "Calibration", down: true, sort: (row) => VERDICTS[row.verdict].order + Math.min(row.ece ?? 0, 0.99), cell: (row) => badge(row.verdict, why(row)) },
  { name: "Since", cell: (row) => sinceWhen(entries, row.workload, row.verdict) },
  { name: "ECE", title: "Expected calibration error of the coefficients in force", number: true, sort: (row) => row.ece, cell: (row) => fixed(row.ece) },
  { name: "Log-loss", title: "nats a label", number: true, sort: (row) => row.log_loss, cell: (row) => fixed(row.log_loss) },
  { name: "AUC", number: true, sort: (row) => row.auc, cell: (row) => fixed(row.auc, 3) },
  { name: "Accepted", title: "Share of recent labels", number: true, sort: (row) => row.accepted, cell: (row) => share(row.accepted) },
  { name: "Labels", number: true, sort: (row) => row.labels, cell: (row) => count(row.labels) },
  { name: "Last evidence", sort: (row) => row.event_time_ms, cell: (row) => time(row.event_time_ms) },
  { name: "Override", sort: (row) => (row.override ? overrideText(row.override) : null), cell: (row) => (row.override ? [overrideText(row.override), h("div", { class: "note" }, `by ${who(row.override)}`)] : NOTHING) },
];

// A whole pair is previewed on its workloads with most labels.
function overrideSpec(context, detail, base) {
  const served = context.get(tablePath(base))?.data;
  const keys = [...detail.workloads].sort((a, b) => (b.labels ?? 0) - (a.labels ?? 0)).slice(0, PREVIEWED).map((one) => one.workload);
  return {
    pair: detail.id, scope: null, base, row: served?.prior,
    targets: (kind, part) => keys.map((key) => ({ key, row: kind === "pin" ? part.proposal() : part.proposal(served.workloads[key] ?? served.prior) })),
  };
}
