// Does speculation pay for this workload, and how many drafts are best.
import { chart } from "../charts.js";
import { h, island } from "../dom.js";
import { field, needNumber, numberInput } from "../forms/fields.js";
import { NOTHING, count, fixed, isNumber, signed } from "../format.js";
import { facts, notThere, panel } from "../parts.js";

// What the reader says a draft costs, where no engine has measured it.
let ratio = "";
export const advicePath = (base) => `${base}/advice${ratio ? `?draft_ratio=${encodeURIComponent(ratio)}` : ""}`;

const VERDICTS = { helps: ["good", "\u2713"], marginal: ["watch", "\u25B2"], hurts: ["bad", "\u2715"], unknown: ["few", "\u25CB"] };

export function advicePanel(context, path) {
  const resource = context.get(path);
  const missing = notThere(resource, "advice");
  const asking = island("ratio", createRatio, context, "form", { class: "inline", novalidate: true });
  if (missing) return panel("advice", "Does speculation pay?", missing, ratio ? asking : null);
  const advice = resource.data;
  const [tone, mark] = VERDICTS[advice.verdict] ?? VERDICTS.unknown;
  const word = advice.verdict === "unknown" ? "cannot tell" : `speculation ${advice.verdict === "marginal" ? "is marginal" : advice.verdict}`;
  return panel(
    "advice", "Does speculation pay?",
    h("p", {}, h("span", { class: `badge ${tone}` }, h("span", { "aria-hidden": "true" }, mark), ` ${word}`), ` ${advice.message ?? ""}`),
    facts(
      ["Mean accepted length", fixed(advice.mean_accepted_length, 2)], ["Best K", advice.best_k === null ? "not known without costs" : count(advice.best_k)],
      ["Gain at the best K", isNumber(advice.best_gain) ? `${signed(100 * (advice.best_gain - 1), 1)} %` : NOTHING], ["Costs from", source(advice.cost_source)], ["Labels", count(advice.labels)],
    ),
    advice.cost_source?.startsWith("engine:") ? null : asking,
    advice.tokens_per_step?.length ? h("div", { class: "charts" }, tokensChart(advice), costChart(advice)) : null,
    advice.notes?.length ? h("ul", { class: "note" }, advice.notes.map((note) => h("li", {}, note))) : null,
  );
}

function source(text) {
  if (text === "ratio") return "the ratio of the draft's cost that was asked for";
  if (!text || text === "none") return "nowhere: no engine has published any";
  return text.replace(/^engine:/, "engine ");
}

const best = ({ best_k: k }) => (k === null ? [] : [{ at: k, label: "K", words: "best number of drafts", tone: "override" }]);

function tokensChart(advice) {
  const x = advice.tokens_per_step.map((_, k) => k);
  return chart({ key: "tokens-chart", title: "Tokens per step", note: "below 2 speculation rarely pays", whole: true, x, xLabel: "Drafts K", yLabel: "Tokens", digits: 3, fromZero: true, marks: best(advice), series: [{ label: "Tokens per step", values: advice.tokens_per_step, tone: "one" }] });
}

function costChart(advice) {
  if (!advice.tokens_per_cost?.length) return null;
  const x = advice.tokens_per_cost.map((_, k) => k);
  return chart({ key: "pays-chart", title: "Tokens per cost", note: "the highest point is the best K", whole: true, x, xLabel: "Drafts K", yLabel: "Tokens per cost", digits: 4, marks: best(advice), series: [{ label: "Tokens per cost", values: advice.tokens_per_cost, tone: "one" }] });
}

function createRatio(form, context) {
  const cost = field("Cost of drafting one token, in target steps", numberInput(ratio, { min: 0, max: 10 }), "For example 0.05; without costs nobody can say which K is best.");
  form.append(cost.node, h("div", { class: "buttons" }, h("button", { type: "submit" }, "Use this cost")));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const value = needNumber(cost);
    if (value === null || !cost.error(value >= 0 && value <= 10 ? null : "Enter a number from 0 to 10.")) return;
    ratio = String(value);
    context.refresh();
  });
  return { update() {} };
}
