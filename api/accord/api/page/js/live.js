// News from the server: a stream of events, read with fetch() because EventSource cannot send a token.
import { authorised } from "./api.js";
import { session } from "./session.js";

const RETRY_MS = [1000, 15000];
const SILENT_MS = 25000; // two heartbeats and a half

// Calls `onNews({pair?})` for changes, `onState({live, reason})` for the connection itself.
export class Live {
  constructor(onNews, onState) {
    this.onNews = onNews;
    this.onState = onState;
    this.failures = 0;
  }

  start() {
    this.stop();
    this.stopped = new AbortController();
    this.#run(this.stopped.signal);
  }

  stop() {
    this.stopped?.abort();
  }

  async #run(stopped) {
    while (!stopped.aborted) {
      const reason = await this.#session(stopped);
      if (stopped.aborted) return;
      if (reason !== null) this.onState({ live: false, reason });
      if (session.state.needed) return;
      const pause = reason === null ? 0 : Math.min(RETRY_MS[1], RETRY_MS[0] * 2 ** this.failures++);
      await sleep(pause * (0.5 + Math.random() / 2), stopped);
    }
  }

  // One connection, until it ends; why it failed, null for an orderly end after news.
  async #session(stopped) {
    const silent = new AbortController();
    let timer = setTimeout(() => silent.abort(), SILENT_MS);
    try {
      const response = await fetch("/v1/events", {
        headers: authorised({ Accept: "text/event-stream" }), cache: "no-store",
        signal: AbortSignal.any([stopped, silent.signal]),
      });
      if (response.status === 401) {
        session.unauthenticated();
        return "signed out";
      }
      if (!response.ok) return response.status === 503 ? "too many pages are open" : "this server sends no events";
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      let heard = false;
      for (;;) {
        const { value, done } = await reader.read();
        // A server that stops ends its streams in order, and is asked again at once; without a word, later.
        if (done) return heard ? null : "the server ended the stream";
        clearTimeout(timer);
        timer = setTimeout(() => silent.abort(), SILENT_MS);
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        for (const part of parts) heard = this.#event(part) || heard;
      }
    } catch {
      return silent.signal.aborted ? "the server went silent" : "the server cannot be reached";
    } finally {
      clearTimeout(timer);
    }
  }

  #event(text) {
    const fields = Object.fromEntries(text.split("\n").filter((line) => line.includes(": ")).map((line) => [line.slice(0, line.indexOf(": ")), line.slice(line.indexOf(": ") + 2)]));
    let data;
    try {
      data = JSON.parse(fields.data);
    } catch {
      return false; // a comment, or nothing that this page knows
    }
    if (fields.event === "feed") {
      this.failures = 0;
      this.onState(data.alive ? { live: true } : { live: false, reason: "the store does not answer the server" });
      if (data.alive) this.onNews({});
      return true;
    }
    if (fields.event === "change") {
      this.onNews({ pair: data.pair });
      return true;
    }
    return false;
  }
}

function sleep(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    }, { once: true });
  });
}
