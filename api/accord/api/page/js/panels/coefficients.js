// The coefficients themselves: what is in force, what was learnt, and how sure that is.
import { chart } from "../charts.js";
import { h } from "../dom.js";
import { count, fixed, signed } from "../format.js";
import { apart as differ, predict } from "../model.js";
import { panel } from "../parts.js";

const GRID = Array.from({ length: 49 }, (_, i) => 0.02 + 0.02 * i);

export function coefficientsPanel(view, knots) {
  const { coefficients, learnt, standard_errors: errors } = view;
  const apart = Boolean(learnt) && differ(learnt, coefficients, knots);
  return panel(
    "coefficients", "Coefficients",
    h("p", { class: "note" }, "P(accept) = sigmoid(slopes · x(f) + intercept of the position + the request's own effect), f = logit of the draft's highest probability."),
    h("div", { class: "charts" }, intercepts(coefficients, learnt, apart, errors), curves(coefficients, learnt, apart, knots)),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Slopes" }, slopes(view, knots)),
  );
}

function intercepts(row, learnt, apart, errors) {
  const x = row.intercepts.map((_, k) => k);
  const base = learnt ?? row;
  const bound = (side) => errors && base.intercepts.map((value, k) => value + side * 1.96 * (errors.intercepts[k] ?? NaN));
  const certain = errors ? { low: bound(-1), high: bound(1) } : {};
  const series = apart
    ? [{ label: "In force", values: row.intercepts, tone: "two", line: false }, { label: "Learnt", values: learnt.intercepts, tone: "one", line: false, hollow: true, ...certain }]
    : [{ label: "In force", values: row.intercepts, tone: "one", line: false, ...certain }];
  return chart({ key: "intercept-chart", title: "Intercepts", note: errors ? "bars are 95 % intervals of the learnt row" : "", whole: true, x, xLabel: "Position in the draft", yLabel: "Log-odds", series });
}

// The first and the last position span the others.
function curves(row, learnt, apart, knots) {
  const last = row.intercepts.length - 1;
  const of = (coefficients, position) => GRID.map((q) => predict(coefficients, knots, position, q));
  const series = [{ label: "First position", values: of(row, 0), tone: apart ? "two" : "one", points: false }];
  if (last > 0) series.push({ label: `Position ${last}`, values: of(row, last), tone: apart ? "two" : "one", points: false, dash: [6, 4] });
  if (apart) series.push({ label: "First position, learnt", values: of(learnt, 0), tone: "one", points: false });
  return chart({ key: "curve-chart", title: "Acceptance over draft confidence", note: "dotted diagonal: what the draft itself believes", x: GRID, xLabel: "Highest draft probability q_max", yLabel: "P(accept)", xRange: [0, 1], yRange: [0, 1], diagonal: true, series });
}

function slopes({ coefficients, learnt, standard_errors: errors, memory_labels: memory }, knots) {
  // Hinges add up: the slope of a piece is the sum of all before it.
  const pieces = ["f \u2264 " + (knots.length ? fixed(knots[0], 1) : "\u221E"), ...knots.map((knot, i) => (i + 1 < knots.length ? `${fixed(knot, 1)} to ${fixed(knots[i + 1], 1)}` : `f > ${fixed(knot, 1)}`))];
  const sum = (values, i) => values.slice(0, i + 1).reduce((a, b) => a + b, 0);
  const rows = coefficients.slopes.map((value, i) => [pieces[i], signed(sum(coefficients.slopes, i)), signed(value), learnt ? signed(learnt.slopes[i]) : "–", errors ? `\u00B1${fixed(1.96 * errors.slopes[i], 3)}` : "–"]);
  return [
    h(
      "table", {},
      h("caption", {}, `Slopes over logit(q_max). Request variance in force ${fixed(coefficients.request_variance, 3)}. ${memory ? `After ${count(memory)} new labels old evidence counts 1/e.` : ""}`),
      h("thead", {}, h("tr", {}, ["Piece", "Slope of the piece", "Coefficient in force", "Learnt", "95 % interval"].map((name, i) => h("th", { scope: "col", class: i ? "number" : null }, name)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((value, i) => h(i ? "td" : "th", { class: i ? "number" : null, scope: i ? null : "row" }, value))))),
    ),
  ];
}
