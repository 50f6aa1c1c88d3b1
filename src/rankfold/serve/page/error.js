// What went wrong, in a calm box, and what can be done about it.

import { make } from "./dom.js";
import { Problem, useToken } from "./server.js";

const PASSING = [0, 429, 502, 503, 504]; // may be gone in a moment

/** The server's error and hint; a button to try again, or a field for the token. */
export function problemBox(problem, again) {
  if (!(problem instanceof Problem)) console.error(problem);
  const box = make(
    "div",
    { class: "box" },
    make("p", { class: "what" }, sentence(problem.message)),
    problem.hint ? make("p", { class: "hint" }, sentence(problem.hint)) : null,
  );
  if (problem.status === 401) box.append(tokenForm(again));
  else if (PASSING.includes(problem.status)) {
    box.append(make("button", { type: "button", onclick: again }, "Try again"));
  }
  return box;
}

const sentence = (words) =>
  words.charAt(0).toUpperCase() + words.slice(1) + (/[.?!]$/.test(words) ? "" : ".");

function tokenForm(again) {
  const input = make("input", { id: "token", type: "password", autocomplete: "off", required: true });
  const use = (event) => {
    event.preventDefault();
    useToken(input.value.trim());
    again();
  };
  return make(
    "form",
    { class: "row", onsubmit: use },
    make("div", {}, make("label", { for: "token" }, "Token"), input),
    make("button", { type: "submit", class: "main" }, "Use it"),
  );
}
