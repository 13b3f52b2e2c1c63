// What the page says of its own connection, and of data that are old.
import { h, show } from "./dom.js";
import { span, time } from "./format.js";

export class Connection {
  constructor() {
    this.live = false;
    this.since = Date.now();
    this.reason = null;
    this.known = false;
    setInterval(() => this.#age(), 1000);
  }

  state({ live, reason }) {
    if (this.known && live === this.live && reason === this.reason) return;
    if (live !== this.live) this.since = Date.now();
    Object.assign(this, { live, reason, known: true });
    this.#show();
  }

  // The state is announced to screen readers when it changes; how long it has lasted is not, every second.
  #show() {
    const box = document.getElementById("connection");
    box.dataset.state = this.live ? "live" : "polling";
    const text = document.getElementById("connection-state");
    show(text, h("span", { "aria-hidden": "true" }, this.live ? "\u25CF " : "\u25CC "), this.live ? "Live" : "Reconnecting, asking every 4 s meanwhile");
    text.title = this.live ? "Changes are shown as they are published" : this.reason ?? "";
    this.#age();
  }

  #age() {
    const age = Date.now() - this.since;
    document.getElementById("connection-age").textContent = this.known && !this.live && age > 2000 ? `for ${span(age)}: ${this.reason}` : "";
  }

  trouble(trouble) {
    const box = document.getElementById("banner");
    if (!trouble) show(box);
    else if (trouble.at) show(box, h("p", { class: "banner" }, h("strong", {}, "Stale. "), "What you see was read at ", time(trouble.at, { ago: false }), `: ${trouble.reason}.`));
    else show(box, h("p", { class: "banner" }, h("strong", {}, "Nothing could be read. "), `${sentence(trouble.reason)}.`));
  }
}

const sentence = (text) => text[0].toUpperCase() + text.slice(1);
