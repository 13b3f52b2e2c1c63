// What people have put in force, and the forms to change it.
import { pairPath } from "../api.js";
import { h, island } from "../dom.js";
import { createLiftForm } from "../forms/lift_form.js";
import { createOverrideForm } from "../forms/override_form.js";
import { notThere, overrideSentence, pairHref, panel, workloadHref } from "../parts.js";

export const overridesPath = (pairBase) => `${pairBase}/overrides`;

// spec: {pair, scope, base, row, targets}; scope is null for the whole pair, row is what is in force, targets(kind, part) the rows to preview.
export function overridePanel(context, spec, inForce) {
  const resource = context.get(overridesPath(pairPath(spec.pair)));
  const missing = notThere(resource, "overrides");
  if (missing) return panel("override", "Override", missing);
  const { revision, overrides } = resource.data;
  const own = overrides.find((one) => one.scope === spec.scope) ?? null;
  const done = (text) => {
    if (text) context.say(text);
    context.refresh();
  };
  const props = { ...spec, revision, done };
  return panel(
    "override", "Override",
    h("p", {}, state(spec, own, inForce)),
    spec.scope === null ? others(spec.pair, overrides.filter((one) => one.scope !== null)) : null,
    own ? island(`lift-${spec.base}`, createLiftForm, props, "form", { id: "lift-form", novalidate: true }) : null,
    spec.row ? island(`put-${spec.base}`, createOverrideForm, props, "form", { id: "override-form", novalidate: true }) : null,
  );
}

function state(spec, own, inForce) {
  if (own) return ["In force: ", overrideSentence(own), "."];
  if (inForce) return ["In force: ", overrideSentence(inForce), ". It is the whole pair's, and is lifted ", h("a", { href: pairHref(spec.pair) }, "there"), "."];
  return spec.scope === null ? "No override of the whole pair." : "No override: engines are served what was learnt.";
}

function others(pair, overrides) {
  if (!overrides.length) return null;
  return h("ul", {}, overrides.map((one) => h("li", { key: one.scope }, h("a", { href: workloadHref(pair, one.scope) }, one.scope), ": ", overrideSentence(one))));
}

export function rollBack(version) {
  document.getElementById("override-form")?._rollBack(version);
}
