// What the current view has read: a resource a path, and the last good answer of each.
import { call } from "./api.js";
import { readOlder, readPaged } from "./paged.js";

const PAGED = /\/(history|audit)(\?|$)/;

// resource: {state: "loading" | "ok" | "missing" | "forbidden" | "error", data, etag, at, error, code}
export class Data {
  constructor() {
    this.resources = new Map();
  }

  get(path) {
    return this.resources.get(path);
  }

  // Reads paths, all at once; those that were read before keep their last good data when it fails now.
  async read(paths, signal) {
    for (const path of paths) if (!this.resources.has(path)) this.resources.set(path, { state: "loading" });
    await Promise.all(paths.map((path) => this.#one(path, signal)));
  }

  keep(paths) {
    const wanted = new Set(paths);
    for (const path of this.resources.keys()) if (!wanted.has(path)) this.resources.delete(path);
  }

  // The page after the last one of a list.
  async older(path) {
    const before = this.resources.get(path);
    const data = before?.data && (await readOlder(path, before.data));
    if (data && this.resources.get(path)?.data === before.data) this.resources.set(path, { ...before, data });
  }

  // The oldest answer that is still shown although a newer one was asked for, and why there is none.
  get trouble() {
    let found = null;
    for (const one of this.resources.values()) {
      const stale = one.stale && { at: one.at, reason: "the store does not answer the server" };
      const failed = one.state === "error" && { at: one.at, reason: one.error };
      const trouble = failed || stale;
      if (trouble && (!found || (trouble.at ?? 0) < (found.at ?? 0))) found = trouble;
    }
    return found;
  }

  async #one(path, signal) {
    const before = this.resources.get(path) ?? {};
    const answer = PAGED.test(path) ? await readPaged(path, before.data, signal) : await call(path, { signal });
    if (signal?.aborted || !this.resources.has(path)) return;
    if (answer.ok) {
      this.resources.set(path, {
        state: "ok", data: answer.body, etag: answer.etag, stale: answer.stale,
        at: answer.stale ? (before.at ?? Date.now()) : Date.now(),
      });
      return;
    }
    const state = { 404: "missing", 401: "forbidden", 403: "forbidden" }[answer.status] ?? "error";
    const kept = state === "error" ? { data: before.data, at: before.at } : {};
    this.resources.set(path, { ...kept, state, etag: answer.etag, error: answer.error.message, code: answer.error.code });
  }
}
