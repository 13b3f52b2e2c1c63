// What coefficients would do on recent traffic, before anybody is served them.
import { call, workloadPath } from "../api.js";
import { h } from "../dom.js";
import { count, fixed, isNumber, signed } from "../format.js";

const VERDICTS = { better: ["good", "\u2713", "better"], no_difference: ["few", "\u25CB", "no difference"], worse: ["bad", "\u2715", "worse"] };
const METRICS = [["Log-loss", "log_loss"], ["ECE", "ece"], ["AUC", "auc"], ["Brier score", "brier"], ["Accepted a step", "accepted_per_step"]];

// targets: [{key, row}] the proposed row of each workload -> what to show.
export async function preview(pair, targets, signal) {
  const answers = await Promise.all(
    targets.map(async ({ key, row }) => ({ key, answer: await call(`${workloadPath(pair, key)}/what-if`, { method: "POST", body: row, signal }) })),
  );
  if (!answers.length) return h("p", { class: "empty" }, "No workload of this pair has labels to try it on.");
  const failed = answers.find(({ answer }) => !answer.ok);
  if (failed) return h("p", { class: "error" }, words(failed.answer));
  return answers.length === 1 ? one(answers[0].answer.body) : many(answers);
}

function words(answer) {
  if (answer.status === 404) return "This server does not offer what-if, or knows no such workload.";
  if (answer.status === 403) return "Your token's role may not ask what-if.";
  return `What-if failed: ${answer.error.message}${answer.error.field ? ` (${answer.error.field})` : ""}`;
}

function badge(verdict) {
  const [tone, mark, word] = VERDICTS[verdict] ?? ["few", "\u25CB", String(verdict)];
  return h("span", { class: `badge ${tone}` }, h("span", { "aria-hidden": "true" }, mark), ` ${word}`);
}

function one(found) {
  const columns = [["In force", found.in_force], ["Proposed", found.proposed], ...(found.learnt ? [["Learnt", found.learnt]] : [])];
  const { log_loss: by, noise } = found.difference ?? {};
  return h(
    "div", {},
    h("p", {}, badge(found.verdict), ` ${found.message ?? ""}`),
    h("p", { class: "note" }, found.difference ? `On ${count(found.labels)} recent labels: log-loss ${signed(by, 4)}, noise \u00B1${fixed(noise)}. Nothing is saved yet.` : "Nothing is saved yet."),
    h(
      "div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "What-if figures" },
      h(
        "table", {},
        h("caption", { class: "unseen" }, "What these coefficients would do on recent traffic"),
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Figure"), columns.map(([name]) => h("th", { scope: "col", class: "number" }, name)))),
        h("tbody", {}, METRICS.map(([name, field]) => h("tr", {}, h("th", { scope: "row" }, name), columns.map(([, of]) => h("td", { class: "number" }, isNumber(of?.[field]) ? fixed(of[field]) : "–"))))),
      ),
    ),
  );
}

function many(answers) {
  return h(
    "div", {},
    h("p", { class: "note" }, "Workload by workload, on recent labels. Nothing is saved yet."),
    h(
      "div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "What-if by workload" },
      h(
        "table", {},
        h("caption", { class: "unseen" }, "What this would do to each workload"),
        h("thead", {}, h("tr", {}, ["Workload", "Verdict", "Log-loss", "Noise", "ECE in force", "ECE proposed"].map((name, i) => h("th", { scope: "col", class: i > 1 ? "number" : null }, name)))),
        h("tbody", {}, answers.map(({ key, answer: { body } }) => h(
          "tr", {}, h("th", { scope: "row" }, key), h("td", {}, badge(body.verdict)),
          [signed(body.difference?.log_loss, 4), fixed(body.difference?.noise), fixed(body.in_force?.ece), fixed(body.proposed?.ece)].map((value) => h("td", { class: "number" }, value)),
        ))),
      ),
    ),
  );
}
