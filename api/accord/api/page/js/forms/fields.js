// Labelled fields, and what people said of themselves last.
import { h } from "../dom.js";

let used = 0;

// -> {node, input, error(text)}: the message is tied to its field, and read out when it comes.
export function field(label, input, help) {
  const id = `field-${++used}`;
  const note = h("span", { id: `${id}-error`, class: "error" });
  input.id = id;
  input.setAttribute("aria-describedby", `${id}-error${help ? ` ${id}-help` : ""}`);
  const node = h("div", { class: "field" }, h("label", { for: id }, label), input, help ? h("span", { id: `${id}-help`, class: "note" }, help) : null, note);
  return {
    node,
    input,
    error(text) {
      note.textContent = text ?? "";
      if (text) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
      return !text;
    },
  };
}

export const numberInput = (value, attributes = {}) => h("input", { type: "number", step: "any", inputmode: "decimal", value, ...attributes });
export const textInput = (value, attributes = {}) => h("input", { type: "text", value, autocomplete: "off", ...attributes });

export function select(options, chosen) {
  return h("select", {}, options.map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
}

export function needNumber(one) {
  const value = one.input.value.trim() === "" ? NaN : Number(one.input.value);
  const fine = Number.isFinite(value);
  one.error(fine ? null : "Enter a number.");
  return fine ? value : null;
}

export function needText(one, what) {
  const value = one.input.value.trim();
  one.error(value ? null : `Enter ${what}.`);
  return value || null;
}

const ACTOR = "accord-actor";

export function rememberedActor() {
  try {
    return sessionStorage.getItem(ACTOR) ?? "";
  } catch {
    return "";
  }
}

export function rememberActor(actor) {
  try {
    sessionStorage.setItem(ACTOR, actor);
  } catch {
    // asked again next time
  }
}
