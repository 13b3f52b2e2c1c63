// Putting an override: fields, preview, saving with If-Match, and what happens when somebody else was first.
import { call } from "../api.js";
import { h, show } from "../dom.js";
import { fixed } from "../format.js";
import { forbidden } from "../session.js";
import { conflict } from "./conflict.js";
import { field, needText, rememberActor, rememberedActor, select, textInput } from "./fields.js";
import { KINDS, kindFields } from "./kinds.js";
import { preview } from "./preview.js";

const EXPIRIES = [["900", "in 15 minutes"], ["3600", "in 1 hour"], ["14400", "in 4 hours"], ["86400", "in 1 day"], ["604800", "in 7 days"], ["", "never: until it is lifted"]];
const PREVIEW_AFTER_MS = 500;

// props: {pair, scope, base, revision, row, targets(proposal) -> [{key, row}], done(text)}; an island, so that what somebody
// types outlives every refresh. The revision that counts is the one that was shown when they began.
export function createOverrideForm(form, first) {
  let props = first;
  let begun = null;
  let asked = null;
  let timer = null;
  const kinds = kindFields();
  const radios = KINDS.map(([kind, label, help], i) => {
    const radio = h("input", { type: "radio", name: "kind", value: kind, id: `kind-${kind}`, checked: i === 0 });
    return { kind, radio, node: h("div", { class: "field check" }, radio, h("label", { for: `kind-${kind}` }, h("strong", {}, label), `: ${help}`)) };
  });
  const parts = h("div", {});
  const reason = field("Reason", textInput("", { maxlength: 500 }), "For whoever finds this later; it stays in the audit trail.");
  const actor = field("Your name", textInput(rememberedActor(), { maxlength: 100 }));
  const expiry = field("Ends", select(EXPIRIES, "3600"));
  const shown = h("div", { id: "preview", role: "status" });
  const outcome = h("div", { id: "outcome", role: "alert", tabindex: "-1" });
  const closed = h("p", { class: "warn" });
  const save = h("button", { type: "submit", class: "primary" }, "Save override");
  const tryIt = h("button", { type: "button", onclick: () => look() }, "Preview");
  const reset = h("button", { type: "button", onclick: () => forget() }, "Start over");
  const group = h(
    "fieldset", {}, h("legend", {}, "Put an override"), closed,
    h("div", { role: "radiogroup", "aria-label": "Kind of override" }, radios.map((one) => one.node)),
    parts, h("div", { class: "fields" }, reason.node, actor.node, expiry.node), shown, outcome, h("div", { class: "buttons" }, save, tryIt, reset),
  );
  form.append(group);

  const kind = () => radios.find((one) => one.radio.checked).kind;

  function arrange() {
    for (const [name, part] of Object.entries(kinds)) part.node.hidden = name !== kind();
    tryIt.hidden = ["freeze", "rollback"].includes(kind());
    save.textContent = kind() === "rollback" ? "Roll back" : "Save override";
  }

  function begin() {
    begun ??= props.revision;
  }

  function forget() {
    begun = null;
    clearTimeout(timer);
    asked?.abort();
    for (const part of Object.values(kinds)) part.clear();
    kinds.pin.fill(props.row);
    reason.input.value = "";
    for (const one of [reason, actor]) one.error(null);
    show(shown);
    show(outcome);
    arrange();
  }

  async function look() {
    clearTimeout(timer);
    const row = kinds[kind()].proposal(props.row);
    if (!row) return;
    asked?.abort();
    const mine = (asked = new AbortController());
    if (!shown.hasChildNodes()) show(shown, h("p", { class: "empty" }, "Trying it on recent traffic …"));
    const found = await preview(props.pair, props.targets(kind(), kinds[kind()]), mine.signal).catch(() => null);
    if (found && !mine.signal.aborted) show(shown, found);
  }

  function body() {
    const part = kinds[kind()].read();
    const text = needText(reason, "a reason");
    const name = needText(actor, "your name");
    if (!part || !text || !name) return null;
    const rest = { ...part, reason: text, actor: name, expires_in_s: expiry.input.value ? Number(expiry.input.value) : null };
    return kind() === "rollback" ? rest : { kind: kind(), ...rest };
  }

  async function submit() {
    begin();
    const sent = body();
    if (!sent) {
      form.querySelector('[aria-invalid="true"]')?.focus();
      return;
    }
    save.disabled = true;
    show(outcome);
    const [method, path] = kind() === "rollback" ? ["POST", "rollback"] : ["PUT", "override"];
    const answer = await call(`${props.base}/${path}`, { method, body: sent, headers: { "If-Match": `"${begun}"` } });
    save.disabled = false;
    if (answer.ok) saved(sent, answer.body);
    else if (answer.status === 412) await collide();
    else show(outcome, h("p", { class: "error" }, refusal(answer)));
    if (!answer.ok) outcome.focus();
  }

  function saved(sent, answer) {
    rememberActor(sent.actor);
    forget();
    const warning = answer.warning;
    show(
      outcome, h("p", { class: "done" }, `Saved as version ${answer.version}. Engines apply it at their next round.`),
      warning ? h("p", { class: "warn" }, `Warning: ${warning.message} (log-loss worse by ${fixed(warning.log_loss_worse_by)}, noise ${fixed(warning.noise)})`) : null,
    );
    props.done(`Saved as version ${answer.version}`);
  }

  async function collide() {
    const found = await conflict(props, begun);
    const over = () => {
      begun = found.revision;
      submit();
    };
    show(
      outcome,
      h("div", { class: "conflict" }, found.node, h("div", { class: "buttons" }, found.revision === null ? null : h("button", { type: "button", onclick: over }, "Save mine over it"), h("button", { type: "button", onclick: () => forget() }, "Keep theirs"))),
    );
    props.done(null);
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  group.addEventListener("input", (event) => {
    begin();
    arrange();
    if (event.target.type === "radio") show(shown);
    clearTimeout(timer);
    if (parts.contains(event.target)) timer = setTimeout(look, PREVIEW_AFTER_MS);
  });
  parts.append(...Object.values(kinds).map((part) => part.node));
  kinds.pin.fill(props.row);
  arrange();

  const update = (next) => {
    props = next;
    const why = forbidden();
    group.disabled = why !== null;
    closed.textContent = why ?? "";
    if (begun === null && !kinds.pin.node.contains(document.activeElement)) kinds.pin.fill(props.row);
  };
  update(first);
  form._rollBack = (version) => {
    begin();
    radios.find((one) => one.kind === "rollback").radio.checked = true;
    kinds.rollback.set(version);
    arrange();
    form.scrollIntoView({ block: "start" });
    reason.input.focus({ preventScroll: true });
  };
  return {
    update,
    destroy() {
      clearTimeout(timer);
      asked?.abort();
    },
  };
}

function refusal(answer) {
  if (answer.status === 403) return "Your token's role may not change what engines are served.";
  if (answer.status === 0) return `Not saved, as far as this page knows: ${answer.error.message}. Look at the audit trail before you try again.`;
  return `Not saved: ${answer.error.message}${answer.error.field ? ` (${answer.error.field})` : ""}`;
}
