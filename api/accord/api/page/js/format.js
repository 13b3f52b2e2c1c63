// Numbers and times as they are shown everywhere.
import { h } from "./dom.js";

export const NOTHING = "–";
const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
export const count = (value) => (isNumber(value) ? whole.format(value) : NOTHING);
export const fixed = (value, digits = 4) => (isNumber(value) ? minus(value.toFixed(digits)) : NOTHING);
export const share = (value) => (isNumber(value) ? `${(100 * value).toFixed(1)} %` : NOTHING);
export const signed = (value, digits = 3) => (isNumber(value) ? (value >= 0 ? "+" : "") + fixed(value, digits) : NOTHING);
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

// A hyphen is half as wide as a digit, and columns would not line up.
const minus = (text) => text.replace("-", "\u2212");

export function span(ms) {
  if (!isNumber(ms)) return NOTHING;
  const s = Math.max(0, ms) / 1000;
  if (s < 1) return `${Math.round(ms)} ms`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} days`;
}

export function clock(ms) {
  const at = new Date(ms);
  const today = new Date().toDateString() === at.toDateString();
  const time = at.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
  return today ? time : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}`;
}

const two = (n) => String(n).padStart(2, "0");

const howLong = (ms) => (ms < 5000 ? "just now" : `${span(ms)} ago`);

const valid = (ms) => isNumber(ms) && ms > 0 && ms < 8.64e15;

// Local time, UTC in the title.
export function time(ms, { ago = true } = {}) {
  if (!valid(ms)) return h("span", {}, NOTHING);
  const iso = new Date(ms).toISOString();
  const since = ago && Date.now() >= ms ? ` (${howLong(Date.now() - ms)})` : "";
  return h("time", { datetime: iso, title: `${iso.replace("T", " ").replace("Z", "")} UTC` }, clock(ms) + since);
}

export function until(ms) {
  if (!valid(ms)) return h("span", {}, "until it is lifted");
  return h("span", {}, ms > Date.now() ? `for ${span(ms - Date.now())} more, until ` : "until ", time(ms, { ago: false }));
}
