// An error in a box, with what to do about it.

import { make } from "./dom.js";
import { ServerError, useToken } from "./server.js";

const TEMPORARY = [0, 429, 502, 503, 504]; // statuses that may be gone in a moment

/** The server's error and hint, with a button to try again or a field for the token. */
export function errorBox(error, retry) {
  if (!(error instanceof ServerError)) console.error(error);
  const box = make(
    "div",
    { class: "box" },
    make("p", { class: "message" }, sentence(error.message)),
    error.hint ? make("p", { class: "hint" }, sentence(error.hint)) : null,
  );
  if (error.status === 401) box.append(tokenForm(retry));
  else if (TEMPORARY.includes(error.status)) {
    box.append(make("button", { type: "button", onclick: retry }, "Try again"));
  }
  return box;
}

const sentence = (text) =>
  text.charAt(0).toUpperCase() + text.slice(1) + (/[.?!]$/.test(text) ? "" : ".");

function tokenForm(retry) {
  const input = make("input", { id: "token", type: "password", autocomplete: "off", required: true });
  const submit = (event) => {
    event.preventDefault();
    useToken(input.value.trim());
    retry();
  };
  return make(
    "form",
    { class: "row", onsubmit: submit },
    make("div", {}, make("label", { for: "token" }, "Token"), input),
    make("button", { type: "submit", class: "main" }, "Continue"),
  );
}
