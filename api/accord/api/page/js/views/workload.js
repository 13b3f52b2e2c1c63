// One workload: is it calibrated, since when, what changed it, who overrode it.
import { pairPath, workloadPath } from "../api.js";
import { h } from "../dom.js";
import { count, fixed, isNumber, plural, share, signed, time } from "../format.js";
import { judge, since, why } from "../judge.js";
import { badge, facts, jump, notThere, overrideSentence, pairHref } from "../parts.js";
import { advicePanel, advicePath } from "../panels/advice.js";
import { auditPanel, auditPath } from "../panels/audit.js";
import { acceptedShare, overTimePanel, reliabilityPanel } from "../panels/calibration.js";
import { coefficientsPanel } from "../panels/coefficients.js";
import { causeText, entriesOf, historyPanel, historyPath } from "../panels/history.js";
import { overridePanel, overridesPath, rollBack } from "../panels/override.js";

export const title = ({ key }) => `${key} · accord`;

const own = ({ pair, key }) => workloadPath(pair, key);

export function paths({ route }) {
  const [pair, base] = [pairPath(route.pair), own(route)];
  return [base, pair, historyPath(pair), overridesPath(pair), auditPath(pair), advicePath(base)];
}

// Goes back in history until it tells since when.
export function older(context) {
  const { route } = context;
  const data = context.get(own(route))?.data;
  const path = historyPath(pairPath(route.pair));
  if (!data || data.prior) return null;
  return since(context.get(path)?.data?.entries ?? [], route.key, judge(judgedOf(data))).older ? path : null;
}

const judgedOf = (data) => ({ ece: data.calibration.ece, labels: data.labels, accepted: acceptedShare(data.calibration) });

export function render(context) {
  const { route } = context;
  const view = context.get(own(route));
  const head = [
    h("nav", { "aria-label": "Where you are" }, h("a", { href: "#/" }, "Pairs"), " › ", h("a", { href: pairHref(route.pair) }, route.pair), " › ", route.key),
    h("h1", {}, route.key),
  ];
  const missing = notThere(view, "this workload");
  if (missing) return [...head, missing];
  const { data } = view;
  const knots = context.get(pairPath(route.pair))?.data?.knots ?? [];
  const entries = context.get(historyPath(pairPath(route.pair)))?.data?.entries ?? [];
  const judged = judgedOf(data);
  return [
    ...head,
    data.prior ? h("p", { class: "lead" }, "The pair has not seen this workload: it is served the prior row, learnt from the others.") : summary(data, judged, entries, route.key),
    facts(
      ["Version in force", count(data.version)], ["Labels learnt", count(data.labels)], ["Last evidence", time(data.event_time_ms)],
      ["Drift alarms", data.drift_alarms ? h("span", {}, `${count(data.drift_alarms)}, last `, time(data.drift_time_ms)) : "none"],
    ),
    notes(data),
    overTimePanel(context, historyPath(pairPath(route.pair)), route.key),
    reliabilityPanel(data.calibration),
    overridePanel(context, overrideSpec(route, data), data.override),
    historyPanel(context, historyPath(pairPath(route.pair)), route.key, rollBack),
    auditPanel(context, auditPath(pairPath(route.pair)), route.pair, route.key),
    coefficientsPanel(data, knots),
    advicePanel(context, advicePath(own(route))),
  ];
}

function overrideSpec(route, data) {
  const learnt = data.learnt ?? data.coefficients;
  return {
    pair: route.pair, scope: route.key, base: own(route), row: data.coefficients,
    // A shift moves what is learnt, also where another override is in force now.
    targets: (kind, part) => [{ key: route.key, row: part.proposal(kind === "shift" ? learnt : data.coefficients) }],
  };
}

// The four questions, answered at the top, each with a way to the details.
function summary(data, judged, entries, key) {
  const verdict = judge(judged);
  const changes = entriesOf(entries, key);
  return h(
    "dl", { class: "answers" },
    answer("Calibrated?", badge(verdict, why(judged)), h("div", { class: "note" }, `ECE ${fixed(judged.ece)}${direction(data.calibration)}`), jump("calibration", "predicted and realised")),
    answer("Since when?", sinceWhen(entries, key, verdict), jump("over-time", "over time")),
    answer("What changed it last?", lastChange(changes), jump("history", "what changed")),
    answer("Overridden?", data.override ? overrideSentence(data.override) : "no", jump("audit", "audit trail")),
  );
}

const answer = (question, ...content) => h("div", {}, h("dt", {}, question), h("dd", {}, content));

// Refits are the ordinary course of things: what came before them tells more.
function lastChange(changes) {
  const special = changes.findIndex((entry) => entry.cause !== "refit");
  if (special < 0) return changes.length ? [causeText(changes[0]), h("div", { class: "note" }, `version ${changes[0].version}, `, time(changes[0].published_ms))] : "not known";
  const entry = changes[special];
  return [
    causeText(entry), h("div", { class: "note" }, `version ${entry.version}, `, time(entry.published_ms)),
    special ? h("div", { class: "note" }, `and ${plural(special, "refit")} since`) : null,
  ];
}

// The first of the versions that have been as far off as the newest, and what made it.
export function sinceWhen(entries, key, verdict) {
  if (verdict === "few") return "too few labels to tell";
  const { entry, older } = since(entries, key, verdict);
  if (!entry) return entries.length ? "only since the last version" : "not known";
  const cause = entry.cause === "refit" || older ? "" : `: ${causeText(entry)}`;
  return [older ? "at least since " : "since ", time(entry.published_ms), h("div", { class: "note" }, `version ${entry.version}${cause}`)];
}

// On average over recent labels: too sure costs wasted verification, too shy leaves tokens behind.
function direction({ positions }) {
  const known = positions.filter((one) => isNumber(one.predicted) && isNumber(one.accepted));
  const labels = known.reduce((sum, one) => sum + one.labels, 0);
  if (!labels) return "";
  const mean = (field) => known.reduce((sum, one) => sum + one[field] * one.labels, 0) / labels;
  const [predicted, accepted] = [mean("predicted"), mean("accepted")];
  const gap = predicted - accepted;
  const word = Math.abs(gap) < 0.01 ? "right on average" : gap > 0 ? "too optimistic" : "too pessimistic";
  return `: ${word}, ${share(predicted)} predicted, ${share(accepted)} accepted (${signed(100 * gap, 1)} points)`;
}

function notes({ held_back: held, on_trial: trial }) {
  const found = [];
  if (held) found.push(`The guard keeps an older row in force: on recent labels the newest one is worse by ${fixed(held.worse_by)} (noise ${fixed(held.noise)}).`);
  if (trial) found.push("A large step is on trial: it is served once later labels confirm it.");
  return found.length ? h("ul", { class: "note" }, found.map((text) => h("li", {}, text))) : null;
}
