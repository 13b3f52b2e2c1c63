// Lists that only grow at their head (history, audit): read whole once, then only what is new.
import { call } from "./api.js";

const FIRST = 100;
const NEWER = 20;
const OLDER = 500;
// A page that stays open for days must not grow with them.
export const MAX_KEPT = 4000;

const withQuery = (path, query) => `${path}${path.includes("?") ? "&" : "?"}${new URLSearchParams(query)}`;

// -> an answer of `call`, whose body is {entries, next}: what was known before, and what came since.
export async function readPaged(path, before, signal) {
  if (before?.entries.length) {
    const newer = await call(withQuery(path, { limit: NEWER }), { signal });
    if (!newer.ok) return newer;
    const found = newer.body?.entries ?? [];
    const known = new Set(before.entries.map((entry) => entry.id));
    const fresh = found.filter((entry) => !known.has(entry.id));
    // Without overlap something lies between, so the list is read again from its head.
    if (fresh.length < found.length) return { ...newer, body: bounded([...fresh, ...before.entries], before.next) };
  }
  const first = await call(withQuery(path, { limit: FIRST }), { signal });
  return first.ok ? { ...first, body: { entries: first.body?.entries ?? [], next: first.body?.next ?? null } } : first;
}

function bounded(entries, next) {
  return entries.length <= MAX_KEPT ? { entries, next } : { entries: entries.slice(0, MAX_KEPT), next: entries[MAX_KEPT - 1].id };
}

export async function readOlder(path, before) {
  const older = await call(withQuery(path, { limit: OLDER, before: before.next }));
  if (!older.ok) return null;
  return { entries: [...before.entries, ...(older.body?.entries ?? [])], next: older.body?.next ?? null };
}
