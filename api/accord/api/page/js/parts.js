// Small pieces that many views use.
import { h } from "./dom.js";
import { NOTHING, signed, time, until } from "./format.js";
import { VERDICTS } from "./judge.js";

export const pairHref = (pair) => `#/pairs/${encodeURIComponent(pair)}`;
export const workloadHref = (pair, key) => `${pairHref(pair)}/workloads/${encodeURIComponent(key)}`;

export function badge(verdict, title) {
  const { word, mark } = VERDICTS[verdict];
  return h("span", { class: `badge ${verdict}`, title }, h("span", { "aria-hidden": "true" }, mark), ` ${word}`);
}

export function panel(id, title, ...body) {
  return h(
    "section", { class: "panel", key: id, id, "aria-labelledby": `${id}-title` },
    h("h2", { id: `${id}-title`, tabindex: "-1" }, title),
    ...body,
  );
}

// Goes to a panel of this view; the hash belongs to the routes.
export function jump(id, ...text) {
  const go = () => {
    const title = document.getElementById(`${id}-title`);
    title?.scrollIntoView({ block: "start" });
    title?.focus({ preventScroll: true });
  };
  return h("button", { type: "button", class: "link", onclick: go }, ...text);
}

export const empty = (...text) => h("p", { class: "empty" }, ...text);

// What to say of a resource that has nothing to show; null when it has.
export function notThere(resource, what) {
  if (resource?.data !== undefined) return null;
  if (!resource || resource.state === "loading") return empty(`Reading ${what} …`);
  if (resource.state === "missing") return empty(`This server does not offer ${what}.`);
  if (resource.state === "forbidden") return empty(`Your token's role may not see ${what}.`);
  return empty(`${what[0].toUpperCase()}${what.slice(1)} cannot be read now: ${resource.error}`);
}

export function facts(...pairs) {
  return h("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, ...value]) => h("div", {}, h("dt", {}, name), h("dd", {}, ...value))));
}

export function overrideText(override) {
  if (!override) return NOTHING;
  switch (override.kind) {
    case "pin": return "pinned to fixed coefficients";
    case "shift": return `shifted by ${signed(override.shift, 2)} in log-odds`;
    case "freeze": return "frozen as it was";
    case "rollback": return `rolled back to version ${override.of_version}`;
    default: return String(override.kind);
  }
}

export const who = (item) =>
  item.actor ? (item.token && item.token !== item.actor ? `${item.actor} (token ${item.token})` : item.actor) : (item.token ?? "nobody named");

export function overrideSentence(override) {
  return h(
    "span", {},
    h("strong", {}, override.scope ? overrideText(override) : `whole pair ${overrideText(override)}`),
    ` by ${who(override)}, `, time(override.created_ms), ", ", until(override.expires_ms),
    override.reason ? `. Reason: ${override.reason}` : "",
  );
}
