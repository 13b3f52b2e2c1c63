// What was published, when, why, and from whose evidence.
import { h } from "../dom.js";
import { NOTHING, count, fixed, isNumber, plural, signed, time } from "../format.js";
import { empty, notThere, overrideText, panel, who } from "../parts.js";
import { table } from "../table.js";

const CAUSES = {
  refit: "refit on new evidence",
  drift: "drift: acceptance changed, old evidence counts less",
  returned: "a row proved worse and an older one was returned",
  carried: "started from a known pair's coefficients",
  override: "an override took effect",
  lifted: "an override was lifted",
  expired: "an override expired",
  rollback: "rolled back",
};

export const historyPath = (base) => `${base}/history`;

export function causeText(entry) {
  const text = CAUSES[entry.cause] ?? String(entry.cause);
  if (entry.override && ["override", "rollback"].includes(entry.cause)) return `${who(entry.override)}: ${overrideText(entry.override)}`;
  if (entry.cause === "rollback" && isNumber(entry.of_version)) return `rolled back to version ${entry.of_version}`;
  return text;
}

// What entries changed a workload, newest first.
export function entriesOf(entries, key) {
  return entries.filter((entry) => concerns(entry, key));
}

function concerns(entry, key) {
  if (key in (entry.moved ?? {}) || key in (entry.returned ?? {})) return true;
  if ((entry.drift ?? []).some((alarm) => alarm.workload === key || alarm.whole_pair)) return true;
  if (!["override", "lifted", "expired", "rollback", "carried"].includes(entry.cause)) return false;
  return !entry.override?.scope || entry.override.scope === key;
}

// Marks for charts over time: letters, because colour alone says nothing to some.
export function marks(entries, key) {
  const found = [];
  for (const entry of entries) {
    const at = entry.published_ms / 1000;
    const drifted = (entry.drift ?? []).filter((alarm) => key === null || alarm.workload === key || alarm.whole_pair);
    if (drifted.length) found.push({ at, label: "D", words: "drift", tone: "drift", dash: [4, 3] });
    if (key !== null && !concerns(entry, key)) continue;
    if (entry.cause === "override") found.push({ at, label: "O", words: "override", tone: "override" });
    if (entry.cause === "lifted" || entry.cause === "expired") found.push({ at, label: "L", words: "override lifted or expired", tone: "override", dash: [2, 3] });
    if (entry.cause === "rollback" || entry.cause === "returned") found.push({ at, label: "R", words: "older coefficients returned", tone: "rollback" });
  }
  return found;
}

// `key` null shows every entry of the pair; `onRollBack(version)` null offers none.
export function historyPanel(context, path, key, onRollBack) {
  const resource = context.get(path);
  const missing = notThere(resource, "history");
  if (missing) return panel("history", "What changed", missing);
  const { entries, next } = resource.data;
  const shown = key === null ? entries : entriesOf(entries, key);
  return panel(
    "history", "What changed",
    shown.length ? entryTable(context, entries, shown, key, onRollBack) : empty(key === null ? "Nothing was published yet." : "Nothing that is known here changed this workload."),
    next ? h("button", { type: "button", onclick: () => context.older(path) }, "Load older entries") : null,
  );
}

function entryTable(context, entries, shown, key, onRollBack) {
  const columns = [
    { name: "Version", number: true, sort: (entry) => entry.version, cell: (entry) => count(entry.version) },
    { name: "Published", sort: (entry) => entry.published_ms, cell: (entry) => time(entry.published_ms) },
    { name: "Why", sort: (entry) => entry.cause, cell: (entry) => why(entry, key) },
    key === null
      ? { name: "Moved", cell: (entry) => movedText(entry) }
      : { name: "Moved", title: "Largest change of a predicted probability", number: true, sort: (entry) => entry.moved?.[key], cell: (entry) => (isNumber(entry.moved?.[key]) ? fixed(entry.moved[key], 3) : NOTHING) },
    key === null ? null : { name: "ECE", number: true, sort: (entry) => entry.metrics?.[key]?.ece, cell: (entry) => fixed(entry.metrics?.[key]?.ece) },
    key === null ? null : { name: "Log-loss", number: true, sort: (entry) => entry.metrics?.[key]?.log_loss, cell: (entry) => fixed(entry.metrics?.[key]?.log_loss) },
    { name: "New labels", number: true, title: "Learnt since the version before", sort: (entry) => fresh(entries, entry, key), cell: (entry) => count(fresh(entries, entry, key)) },
    { name: "Evidence from", cell: (entry) => lineage(entry) },
    onRollBack ? { name: "Go back", cell: (entry) => h("button", { type: "button", onclick: () => onRollBack(entry.version) }, "Roll back to ", h("span", {}, count(entry.version)), " …") } : null,
  ].filter(Boolean);
  return table("history-table", "Published versions, newest first", columns, shown, {
    keyOf: (entry) => entry.id, start: { column: "Published", down: true }, redraw: context.redraw,
  });
}

function why(entry, key) {
  const notes = [];
  for (const alarm of entry.drift ?? []) {
    if (key !== null && alarm.workload !== key && !alarm.whole_pair) continue;
    notes.push(`${key === null ? `${alarm.workload}: ` : ""}${DIRECTIONS[alarm.direction] ?? "acceptance changed"}${alarm.whole_pair ? " in the whole pair" : ""}`);
  }
  for (const [name, figures] of Object.entries(entry.returned ?? {})) {
    if (key === null || key === name) notes.push(`${key === null ? `${name}: ` : ""}was worse by ${fixed(figures.worse_by)} (noise ${fixed(figures.noise)}) on ${plural(Math.round(figures.labels ?? 0), "label")}`);
  }
  for (const [name, figures] of Object.entries(entry.held ?? {})) {
    if (key !== null && key !== name) continue;
    notes.push(`${key === null ? `${name}: ` : ""}the guard kept the older row (new one worse by ${fixed(figures?.worse_by)})`);
  }
  for (const [name, of] of Object.entries(entry.aside ?? {})) {
    if (key === null || key in of) notes.push(`labels of ${name} were set aside`);
  }
  if (entry.override?.reason && entry.cause !== "refit") notes.push(`reason: ${entry.override.reason}`);
  return [h("span", {}, causeText(entry)), notes.slice(0, 5).map((note) => h("div", { class: "note" }, note)), notes.length > 5 ? h("div", { class: "note" }, `and ${notes.length - 5} more`) : null];
}

const DIRECTIONS = { easier: "more was accepted than predicted", harder: "less was accepted than predicted", shape: "acceptance changed its shape" };

function movedText(entry) {
  const keys = Object.entries(entry.moved ?? {});
  if (!keys.length) return NOTHING;
  const largest = keys.sort((a, b) => (b[1] ?? 1) - (a[1] ?? 1)).slice(0, 3);
  const rest = keys.length - largest.length;
  return largest.map(([key, by]) => (isNumber(by) ? `${key} ${signed(by, 3).replace("+", "\u00B1")}` : `${key} new`)).join(", ") + (rest > 0 ? ` and ${rest} more` : "");
}

function fresh(entries, entry, key) {
  const before = entries[entries.indexOf(entry) + 1];
  const labels = (one) => (key === null ? Object.values(one?.labels ?? {}).reduce((sum, n) => sum + n, 0) : (one?.labels?.[key] ?? 0));
  if (!before || !entry.labels || !before.labels) return null;
  return labels(entry) - labels(before);
}

// {engine: [boot, first round, last round]}
function lineage(entry) {
  const engines = Object.entries(entry.lineage ?? {});
  if (!engines.length) return NOTHING;
  const text = engines.slice(0, 4).map(([engine, known]) => (Array.isArray(known) ? `${engine} (rounds ${known[1]}\u2013${known[2]})` : engine)).join(", ");
  return engines.length > 4 ? `${text} and ${engines.length - 4} more` : text;
}
