// Somebody else was first: what they did, while the input stays.
import { call, pairPath } from "../api.js";
import { h } from "../dom.js";
import { time } from "../format.js";
import { overrideSentence, overrideText, who } from "../parts.js";

const SHOWN = 5;

// What is so now, and who did what since a revision -> {revision, node}; revision null when that cannot be told.
export async function conflict({ pair, scope }, seen) {
  const [now, trail] = await Promise.all([call(`${pairPath(pair)}/overrides`), call(`${pairPath(pair)}/audit?limit=20`)]);
  const own = now.body?.overrides?.find((one) => one.scope === scope);
  const since = (trail.body?.entries ?? []).filter((entry) => entry.revision > seen).slice(0, SHOWN);
  return {
    revision: now.body?.revision ?? null,
    node: h(
      "div", {},
      h("p", {}, h("strong", {}, "Somebody else changed this while you were writing."), " Nothing of yours was saved, and your input is kept."),
      since.length ? h("ul", {}, since.map((entry) => h("li", {}, sentence(entry)))) : null,
      h("p", {}, "In force here now: ", own ? overrideSentence(own) : now.ok ? "no override" : "not known", "."),
    ),
  };
}

function sentence(entry) {
  const did = entry.after ? `${overrideText(entry.after)}` : entry.action === "expire" ? "override expired" : "override lifted";
  const by = entry.action === "expire" ? "" : ` by ${who(entry)}`;
  return h("span", {}, `${entry.scope ?? "Whole pair"}: ${did}${by}, `, time(entry.at_ms), entry.reason ? `. Reason: ${entry.reason}` : "");
}
