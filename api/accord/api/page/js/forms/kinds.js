// What can be put in force, and the fields that each kind needs.
import { h } from "../dom.js";
import { shifted } from "../model.js";
import { field, needNumber, numberInput } from "./fields.js";

export const KINDS = [
  ["shift", "Shift", "adds one number to every intercept; the learnt row keeps moving beneath it"],
  ["pin", "Pin", "exactly these coefficients, whatever is learnt"],
  ["freeze", "Freeze", "what is in force now stays in force"],
  ["rollback", "Roll back", "publishes an older version again"],
];

// One object a kind: {node, fill(row), read() -> part of the body or null, proposal(row) -> row to preview or null}.
export function kindFields() {
  return { shift: shift(), pin: pin(), freeze: freeze(), rollback: rollback() };
}

function shift() {
  const by = field("Shift in log-odds", numberInput("0", { min: -10, max: 10 }), "Negative: engines expect fewer acceptances.");
  return {
    node: h("div", { class: "fields" }, by.node),
    fill() {},
    clear() {
      by.input.value = "0";
      by.error(null);
    },
    read() {
      const value = needNumber(by);
      return value === null ? null : { shift: value };
    },
    proposal: (row) => (by.input.value.trim() && Number.isFinite(Number(by.input.value)) ? shifted(row, Number(by.input.value)) : null),
  };
}

function pin() {
  const node = h("div", { class: "fields" });
  let slopes = [];
  let intercepts = [];
  let variance = null;
  const build = (row) => {
    const number = (name) => (value, i) => field(`${name} ${i}`, numberInput(tidy(value)));
    slopes = row.slopes.map(number("Slope"));
    intercepts = row.intercepts.map(number("Intercept"));
    variance = field("Request variance", numberInput(tidy(row.request_variance), { min: 0 }));
    node.replaceChildren(...[...slopes, ...intercepts, variance].map((one) => one.node));
  };
  const values = () => {
    const all = [...slopes, ...intercepts, variance].map(needNumber);
    if (all.includes(null)) return null;
    return { slopes: all.slice(0, slopes.length), intercepts: all.slice(slopes.length, -1), request_variance: all.at(-1) };
  };
  return {
    node,
    fill(row) {
      if (slopes.length !== row.slopes.length || intercepts.length !== row.intercepts.length) {
        build(row);
        return;
      }
      slopes.forEach((one, i) => (one.input.value = tidy(row.slopes[i])));
      intercepts.forEach((one, i) => (one.input.value = tidy(row.intercepts[i])));
      variance.input.value = tidy(row.request_variance);
    },
    clear() {
      for (const one of [...slopes, ...intercepts, variance]) one?.error(null);
    },
    read() {
      const coefficients = values();
      return coefficients && { coefficients };
    },
    proposal: () => values(),
  };
}

// A ten-thousandth of log-odds is far below what anybody can tell.
const tidy = (value) => String(Number(value.toFixed(4)));

function freeze() {
  return { node: h("p", { class: "note" }, "Rows stay as they are now; the learner goes on learning beneath."), fill() {}, clear() {}, read: () => ({}), proposal: () => null };
}

function rollback() {
  const version = field("Version", numberInput("", { min: 1, step: 1 }), "One that the history shows.");
  const hold = h("input", { type: "checkbox", id: "hold", checked: true });
  return {
    node: h("div", { class: "fields" }, version.node, h("div", { class: "field check" }, hold, h("label", { for: "hold" }, "Hold it until it is lifted or expires; otherwise the next learnt version replaces it"))),
    fill() {},
    clear() {
      version.error(null);
    },
    set(value) {
      version.input.value = String(value);
    },
    read() {
      const value = needNumber(version);
      if (value === null) return null;
      return version.error(Number.isInteger(value) && value > 0 ? null : "Enter a version from the history.") ? { version: value, hold: hold.checked } : null;
    },
    proposal: () => null,
  };
}
