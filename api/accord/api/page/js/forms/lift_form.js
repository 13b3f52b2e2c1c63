// Ending an override before its time.
import { call } from "../api.js";
import { h, show } from "../dom.js";
import { forbidden } from "../session.js";
import { conflict } from "./conflict.js";
import { field, needText, rememberActor, rememberedActor, textInput } from "./fields.js";

// props: {pair, scope, base, revision, done(text)}
export function createLiftForm(form, first) {
  let props = first;
  let begun = null;
  const reason = field("Reason for lifting", textInput("", { maxlength: 500 }));
  const actor = field("Your name", textInput(rememberedActor(), { maxlength: 100 }));
  const outcome = h("div", { role: "alert", tabindex: "-1" });
  const lift = h("button", { type: "submit" }, "Lift the override");
  const closed = h("p", { class: "warn" });
  const group = h("fieldset", {}, h("legend", {}, "Lift it: learnt coefficients return at once"), closed, h("div", { class: "fields" }, reason.node, actor.node), outcome, h("div", { class: "buttons" }, lift));
  form.append(group);

  async function submit() {
    begun ??= props.revision;
    const sent = { reason: needText(reason, "a reason"), actor: needText(actor, "your name") };
    if (!sent.reason || !sent.actor) {
      form.querySelector('[aria-invalid="true"]')?.focus();
      return;
    }
    lift.disabled = true;
    const answer = await call(`${props.base}/override`, { method: "DELETE", body: sent, headers: { "If-Match": `"${begun}"` } });
    lift.disabled = false;
    if (answer.ok) {
      rememberActor(sent.actor);
      props.done(`Lifted: version ${answer.body.version} serves what was learnt`);
      return;
    }
    if (answer.status === 412) {
      const found = await conflict(props, begun);
      const again = () => {
        begun = found.revision;
        show(outcome);
        submit();
      };
      show(outcome, h("div", { class: "conflict" }, found.node, found.revision === null ? null : h("button", { type: "button", onclick: again }, "Lift it all the same")));
      props.done(null);
    } else show(outcome, h("p", { class: "error" }, `Not lifted: ${answer.error.message}`));
    outcome.focus();
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  group.addEventListener("input", () => (begun ??= props.revision));
  const update = (next) => {
    props = next;
    const why = forbidden();
    group.disabled = why !== null;
    closed.textContent = why ?? "";
  };
  update(first);
  return { update };
}
