// Who changed what engines are served. Nothing can be altered here, on the page or through the api.
import { h } from "../dom.js";
import { NOTHING, count, time } from "../format.js";
import { empty, notThere, overrideText, panel, who, workloadHref } from "../parts.js";
import { table } from "../table.js";

export const auditPath = (base) => `${base}/audit`;

const ACTIONS = { put: "put in force", delete: "lifted", expire: "expired", rollback: "rolled back" };

// `key` null shows the whole pair's trail.
export function auditPanel(context, path, pair, key) {
  const resource = context.get(path);
  const missing = notThere(resource, "the audit trail");
  if (missing) return panel("audit", "Audit trail", missing);
  const entries = resource.data.entries.filter((entry) => key === null || !entry.scope || entry.scope === key);
  const columns = [
    { name: "When", sort: (entry) => entry.at_ms, cell: (entry) => time(entry.at_ms) },
    { name: "Who", sort: (entry) => who(entry), cell: (entry) => [entry.action === "expire" ? "nobody: its time was over" : who(entry), entry.role ? h("div", { class: "note" }, entry.role) : null] },
    { name: "What", sort: (entry) => entry.action, cell: (entry) => what(entry) },
    { name: "Scope", sort: (entry) => entry.scope ?? "", cell: (entry) => (entry.scope ? h("a", { href: workloadHref(pair, entry.scope) }, entry.scope) : "whole pair") },
    { name: "Reason", cell: (entry) => entry.reason || NOTHING },
    { name: "Version", number: true, sort: (entry) => entry.version_after, cell: (entry) => `${count(entry.version_before)} \u2192 ${count(entry.version_after)}` },
  ];
  return panel(
    "audit", "Audit trail",
    entries.length
      ? table("audit-table", "Changes by people, newest first", columns, entries, { keyOf: (entry) => entry.id, start: { column: "When", down: true }, redraw: context.redraw })
      : empty(key === null ? "Nobody has overridden anything in this pair." : "Nobody has overridden this workload."),
    resource.data.next ? h("button", { type: "button", onclick: () => context.older(path) }, "Load older entries") : null,
  );
}

function what(entry) {
  const action = ACTIONS[entry.action] ?? String(entry.action);
  const before = entry.before ? overrideText(entry.before) : "learnt coefficients";
  const after = entry.after ? overrideText(entry.after) : "learnt coefficients";
  return [h("span", {}, action), h("div", { class: "note" }, `${before} \u2192 ${after}`)];
}
