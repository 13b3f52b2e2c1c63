// Is a workload calibrated? One rule for the whole page.
import { fixed, isNumber } from "./format.js";

// A probability that is wrong by 5 % buys the wrong batch; from 3 % on it is worth a look.
export const BAD = 0.05;
export const WATCH = 0.03;
export const FEW = 1000;

// What ECE shows by chance when everything is right: 20 bins, each with the noise of its labels.
export function chance(labels, accepted) {
  const p = isNumber(accepted) ? Math.min(Math.max(accepted, 0.05), 0.95) : 0.5;
  // Older labels fade: however many came, about so many count.
  const n = Math.min(Math.max(labels ?? 0, 1), 50000);
  return Math.sqrt((2 / Math.PI) * 20 * p * (1 - p) / n);
}

export const VERDICTS = {
  bad: { word: "miscalibrated", mark: "\u2715", order: 3 },
  watch: { word: "drifting off", mark: "\u25B2", order: 2 },
  few: { word: "too few labels", mark: "\u25CB", order: 1 },
  good: { word: "calibrated", mark: "\u2713", order: 0 },
};

export function judge({ ece, labels, accepted }) {
  if (!isNumber(ece) || !isNumber(labels) || labels < FEW) return "few";
  const noise = chance(labels, accepted);
  if (ece >= Math.max(BAD, 2 * noise)) return "bad";
  if (ece >= Math.max(WATCH, 2 * noise)) return "watch";
  return "good";
}

// Entries of history newest first; since when the workload has been at least as far off as it is now said to be.
export function since(entries, key, verdict) {
  const limit = verdict === "bad" ? BAD : verdict === "watch" ? WATCH : null;
  let found = null;
  for (const entry of entries) {
    const ece = entry.metrics?.[key]?.ece;
    if (!isNumber(ece)) continue;
    if (limit === null ? ece >= WATCH : ece < limit) return { entry: found, older: false };
    found = entry;
  }
  return { entry: found, older: true };
}

export const why = ({ ece, labels, accepted }) =>
  `ECE ${fixed(ece)}; miscalibrated from ${fixed(BAD, 2)} on, worth a look from ${fixed(WATCH, 2)} on, ` +
  `about ${fixed(chance(labels, accepted))} by chance`;
