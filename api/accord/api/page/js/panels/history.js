// What was published, when, why, and from whose evidence.
import { h } from "../dom.js";
import { NOTHING, count, fixed, isNumber, plural, time } from "../format.js";
import { empty, notThere, overrideText, panel, who } from "../parts.js";
import { table } from "../table.js";

const SHOWN = 300;

const CAUSES = {
  refit: "refit on new evidence",
  drift: "drift: acceptance changed, old evidence counts less",
  returned: "a row proved worse and an older one was returned",
  carried: "started from a known pair's coefficients",
  override: "an override took effect",
  lifted: "an override was lifted",
  expired: "an override expired",
  rollback: "rolled back",
  restored: "the coefficients were gone from the store, and what was learnt was published again",
};

export const historyPath = (base) => `${base}/history`;

export function causeText(entry) {
  const by = entry.actor ? `${entry.actor}: ` : entry.override ? `${who(entry.override)}: ` : "";
  const where = entry.cause !== "override" && entry.scope === undefined ? "" : entry.scope ? ` (${entry.scope})` : " (whole pair)";
  if (entry.cause === "override" && entry.override) return `${by}${overrideText(entry.override)}${where}`;
  if (entry.cause === "rollback" && isNumber(entry.of_version)) return `${by}rolled back to version ${entry.of_version}${where}`;
  if (entry.cause === "lifted" && entry.override) return `${by}lifted the override${where}`;
  if (entry.cause === "expired" && entry.override) return `the override of ${who(entry.override)} expired${where}`;
  return CAUSES[entry.cause] ?? String(entry.cause);
}

// What entries changed a workload, newest first.
export function entriesOf(entries, key) {
  return entries.filter((entry) => concerns(entry, key));
}

function concerns(entry, key) {
  if (key in (entry.moved ?? {}) || key in (entry.returned ?? {})) return true;
  if ((entry.drift ?? []).some((alarm) => alarm.workload === key || alarm.whole_pair)) return true;
  if (!["override", "lifted", "expired", "rollback", "carried"].includes(entry.cause)) return false;
  const scope = entry.scope ?? entry.override?.scope;
  return !scope || scope === key;
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
  const concerned = key === null ? entries : entriesOf(entries, key);
  const rows = everyRefit ? concerned : grouped(concerned);
  const shown = rows.slice(0, SHOWN);
  const toggle = () => {
    everyRefit = !everyRefit;
    context.redraw();
  };
  return panel(
    "history", "What changed",
    concerned.some(isRefit) ? h("label", { class: "toggle" }, h("input", { type: "checkbox", key: "every-refit", checked: everyRefit, onchange: toggle }), " Show every refit by itself") : null,
    shown.length ? entryTable(context, entries, shown, key, onRollBack) : empty(key === null ? "Nothing was published yet." : "Nothing that is known here changed this workload."),
    rows.length > SHOWN ? h("p", { class: "note" }, `The newest ${count(SHOWN)} of ${count(rows.length)} are shown; accord history tells all.`) : null,
    next && rows.length <= SHOWN ? h("button", { type: "button", onclick: () => context.older(path) }, "Load older entries") : null,
  );
}

// Refits come every second and hide what people did; runs of them are one row.
let everyRefit = false;
const isRefit = (entry) => entry.cause === "refit";

function grouped(entries) {
  const rows = [];
  for (const entry of entries) {
    const last = rows.at(-1);
    if (isRefit(entry) && last && isRefit(last)) (last.run ??= [last]).push(entry);
    else rows.push({ ...entry });
  }
  return rows;
}

function entryTable(context, entries, shown, key, onRollBack) {
  const columns = [
    { name: "Version", number: true, sort: (entry) => entry.version, cell: (entry) => (entry.run ? `${count(entry.run.at(-1).version)} \u2013 ${count(entry.version)}` : count(entry.version)) },
    { name: "Published", sort: (entry) => entry.published_ms, cell: (entry) => (entry.run ? [time(entry.run.at(-1).published_ms, { ago: false }), " \u2013 ", time(entry.published_ms)] : time(entry.published_ms)) },
    { name: "Why", sort: (entry) => entry.cause, cell: (entry) => why(entry, key) },
    key === null
      ? { name: "Moved", cell: (entry) => movedText(entry) }
      : { name: "Moved", title: "Largest change of a predicted probability", number: true, sort: (entry) => largest(entry, key), cell: (entry) => fixed(largest(entry, key), 3) },
    key === null ? null : { name: "ECE", number: true, sort: (entry) => entry.metrics?.[key]?.ece, cell: (entry) => fixed(entry.metrics?.[key]?.ece) },
    key === null ? null : { name: "Log-loss", number: true, sort: (entry) => entry.metrics?.[key]?.log_loss, cell: (entry) => fixed(entry.metrics?.[key]?.log_loss) },
    { name: "New labels", number: true, title: "Learnt since the version before", sort: (entry) => fresh(entries, entry, key), cell: (entry) => count(fresh(entries, entry, key)) },
    { name: "Evidence from", cell: (entry) => lineage(entry) },
    onRollBack ? { name: "Go back", cell: (entry) => (entry.version === entries[0].version ? "in force" : h("button", { type: "button", onclick: () => onRollBack(entry.version) }, `Roll back to ${count(entry.version)} …`)) } : null,
  ].filter(Boolean);
  return table("history-table", "Published versions, newest first", columns, shown, {
    // A run grows at its head; its row stays the same one.
    keyOf: (entry) => (entry.run?.at(-1) ?? entry).id, start: { column: "Published", down: true }, redraw: context.redraw,
  });
}

const largest = (entry, key) => {
  const moved = (entry.run ?? [entry]).map((one) => one.moved?.[key]).filter(isNumber);
  return moved.length ? Math.max(...moved) : null;
};

function why(entry, key) {
  if (entry.run) {
    const held = entry.run.filter((one) => (key === null ? Object.keys(one.held ?? {}).length : one.held?.[key])).length;
    return [h("span", {}, `${count(entry.run.length)} refits on new evidence`), held ? h("div", { class: "note" }, `in ${count(held)} of them the guard kept an older row`) : null];
  }
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
  const reason = entry.reason ?? entry.override?.reason;
  if (reason && entry.cause !== "refit" && entry.cause !== "expired") notes.push(`reason: ${reason}`);
  return [h("span", {}, causeText(entry)), notes.slice(0, 5).map((note) => h("div", { class: "note" }, note)), notes.length > 5 ? h("div", { class: "note" }, `and ${notes.length - 5} more`) : null];
}

const DIRECTIONS = { easier: "more was accepted than predicted", harder: "less was accepted than predicted", shape: "acceptance changed its shape" };

function movedText(entry) {
  const names = [...new Set((entry.run ?? [entry]).flatMap((one) => Object.keys(one.moved ?? {})))];
  if (!names.length) return NOTHING;
  const keys = names.map((key) => [key, largest(entry, key)]).sort((a, b) => (b[1] ?? 1) - (a[1] ?? 1));
  const rest = keys.length - 3;
  return keys.slice(0, 3).map(([key, by]) => (isNumber(by) ? `${key} by ${fixed(by, 3)}` : `${key} new`)).join(", ") + (rest > 0 ? ` and ${rest} more` : "");
}

function fresh(entries, entry, key) {
  const known = (one) => Object.keys(one.labels ?? {}).length > 0;
  const labels = (one) => (key === null ? Object.values(one.labels).reduce((sum, n) => sum + n, 0) : (one.labels[key] ?? 0));
  const oldest = entry.run?.at(-1) ?? entry;
  const before = entries.slice(entries.findIndex((one) => one.id === oldest.id) + 1).find(known);
  return before && known(entry) ? labels(entry) - labels(before) : null;
}

// {engine: [boot, first round, last round]}
function lineage(entry) {
  const engines = Object.entries(entry.lineage ?? {});
  if (!engines.length) return NOTHING;
  if (entry.run) return plural(new Set(entry.run.flatMap((one) => Object.keys(one.lineage ?? {}))).size, "engine");
  const text = engines.slice(0, 4).map(([engine, known]) => (Array.isArray(known) ? `${engine} (rounds ${known[1]}\u2013${known[2]})` : engine)).join(", ");
  return engines.length > 4 ? `${text} and ${engines.length - 4} more` : text;
}
