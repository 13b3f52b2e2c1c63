// The field for a token, and who is signed in.
import { call } from "./api.js";
import { h, island } from "./dom.js";
import { sendable, session } from "./session.js";

export function signInView() {
  if (!session.state.needed) return null;
  return island("sign-in-form", create, { refused: session.state.refused }, "form", { class: "panel narrow", "aria-labelledby": "sign-in-title", novalidate: true });
}

function create(form, first) {
  const error = h("p", { id: "token-error", class: "error", role: "alert" });
  const field = h("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true, "aria-describedby": "token-help token-error" });
  form.append(
    h("h1", { id: "sign-in-title" }, "Sign in"),
    h("label", { for: "token" }, "Token"),
    field,
    h("p", { id: "token-help", class: "note" }, "This server asks for a token. It is kept in this tab only, until you close it or sign out."),
    error,
    h("button", { type: "submit", class: "primary" }, "Sign in"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!sendable(field.value)) {
      error.textContent = field.value.trim() ? "A token has no spaces and no characters outside ASCII." : "Enter a token.";
      field.focus();
      return;
    }
    session.signIn(field.value);
    whoAmI();
    dispatchEvent(new Event("accord-signed-in"));
  });
  const update = ({ refused }) => {
    error.textContent = refused ? "The server does not accept this token." : "";
  };
  update(first);
  field.focus();
  return { update };
}

export function sessionView() {
  const { needed, name, role } = session.state;
  if (needed || !(session.token || role)) return null;
  return [
    role ? h("span", { class: "role" }, name ? `${name}, ${role}` : role) : null,
    session.token ? h("button", { type: "button", onclick: () => session.signOut() }, "Sign out") : null,
  ];
}

// Asks once a sign-in who it is; a server that does not say decides when something is changed.
export async function whoAmI() {
  const answer = await call("/v1/whoami");
  if (answer.ok) session.known(answer.body.name ?? null, answer.body.role ?? null);
}
