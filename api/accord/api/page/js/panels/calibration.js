// How well the coefficients in force predict, now and over time.
import { chart } from "../charts.js";
import { h } from "../dom.js";
import { count, fixed, isNumber, share } from "../format.js";
import { BAD } from "../judge.js";
import { empty, facts, notThere, panel } from "../parts.js";
import { marks } from "./history.js";

export function overTimePanel(context, path, key) {
  const resource = context.get(path);
  const missing = notThere(resource, "history");
  if (missing) return panel("over-time", "Calibration over time", missing);
  const entries = [...resource.data.entries].reverse().filter((entry) => entry.metrics?.[key]);
  if (entries.length < 2) return panel("over-time", "Calibration over time", empty("Fewer than two versions with figures were published; come back after the next."));
  const x = entries.map((entry) => entry.published_ms / 1000);
  const series = (name) => entries.map((entry) => entry.metrics[key][name]);
  const shared = { x, xLabel: "Time", time: true, marks: marks(resource.data.entries, key) };
  return panel(
    "over-time", "Calibration over time",
    h(
      "div", { class: "charts" },
      chart({ ...shared, key: "ece-chart", title: "Expected calibration error", yLabel: "ECE", fromZero: true, note: "of what was in force, at each publication",
        series: [{ label: "ECE", values: series("ece"), tone: "one" }, { label: `Limit ${BAD}`, values: x.map(() => BAD), tone: "bad", dash: [6, 4], points: false }] }),
      chart({ ...shared, key: "loss-chart", title: "Log-loss", yLabel: "nats a label", note: "lower is better; it also depends on how hard the traffic is", series: [{ label: "Log-loss", values: series("log_loss"), tone: "one" }] }),
    ),
  );
}

export function reliabilityPanel(calibration) {
  const { reliability, survival, positions } = calibration;
  if (!reliability.length) return panel("calibration", "Predicted and realised", empty("No labels were learnt for this workload."));
  return panel(
    "calibration", "Predicted and realised",
    facts(
      ["Log-loss", `${fixed(calibration.log_loss)} nats`], ["ECE", fixed(calibration.ece)], ["AUC", fixed(calibration.auc)], ["Brier score", fixed(calibration.brier)],
      ["Recent labels", count(calibration.labels)], ["Accepted", share(acceptedShare(calibration))],
    ),
    h("div", { class: "charts" }, reliabilityChart(reliability), positionChart(positions), survivalChart(survival)),
  );
}

// `accepted` is a count beside `labels`.
export const acceptedShare = ({ accepted, labels }) => (isNumber(accepted) && labels > 0 ? accepted / labels : null);

const unit = { xRange: [0, 1], yRange: [0, 1], diagonal: true };

function reliabilityChart(bins) {
  const [low, high] = bounds(bins.map((bin) => bin.accepted), bins.map((bin) => bin.labels));
  return chart({
    ...unit, key: "reliability-chart", title: "Reliability", note: "on the dashed line, predictions are right; bars are 95 % intervals",
    x: bins.map((bin) => bin.predicted), xLabel: "Predicted acceptance", yLabel: "Accepted share",
    series: [{ label: "Accepted", values: bins.map((bin) => bin.accepted), low, high, tone: "one" }],
  });
}

function positionChart(positions) {
  const [low, high] = bounds(positions.map((one) => one.accepted), positions.map((one) => one.labels));
  return chart({
    key: "position-chart", title: "Acceptance by position", note: "bars are 95 % intervals", whole: true, yRange: [0, 1],
    x: positions.map((one) => one.position), xLabel: "Position in the draft", yLabel: "Share",
    series: [
      { label: "Realised", values: positions.map((one) => one.accepted), low, high, tone: "one" },
      { label: "Predicted", values: positions.map((one) => one.predicted), tone: "two", dash: [6, 4], hollow: true },
    ],
  });
}

function survivalChart(bins) {
  if (!bins.length) return null;
  const [low, high] = bounds(bins.map((bin) => bin.realised), bins.map((bin) => bin.positions));
  return chart({
    ...unit, key: "survival-chart", title: "Survival of draft prefixes", note: "what adaptive verification sums; request effect included",
    x: bins.map((bin) => bin.predicted), xLabel: "Predicted survival", yLabel: "Realised share",
    series: [{ label: "Realised", values: bins.map((bin) => bin.realised), low, high, tone: "one" }],
  });
}

// Wilson's 95 % interval of a share (Wilson 1927): it stays within 0 and 1.
function bounds(shares, labels) {
  const z = 1.96;
  const of = (side) => shares.map((p, i) => {
    const n = labels[i];
    if (!isNumber(p) || !(n > 0)) return null;
    const centre = p + (z * z) / (2 * n);
    const spread = z * Math.sqrt((p * (1 - p)) / n + (z * z) / (4 * n * n));
    return (centre + side * spread) / (1 + (z * z) / n);
  });
  return [of(-1), of(1)];
}
