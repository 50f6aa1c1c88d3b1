// Completing keys while typing: the ARIA combobox with a list of suggestions.

import { count, make, named, unseen } from "./dom.js";
import { Channel } from "./server.js";

const PAUSE = 120; // ms of not typing

/**
 * Make an input complete itself.
 *
 * look(words, signal) gives [{key, text}]; pick(key) is told what was picked.
 */
export function combobox(input, look, pick) {
  const id = `${input.id}-list`;
  const list = make("ul", {
    id,
    role: "listbox",
    class: "suggestions",
    hidden: true,
    "aria-label": "Suggestions",
  });
  const said = unseen("");
  said.setAttribute("role", "status");
  input.after(list, said);
  const roles = {
    role: "combobox",
    "aria-autocomplete": "list",
    "aria-expanded": "false",
    "aria-controls": id,
  };
  for (const [name, value] of Object.entries(roles)) input.setAttribute(name, value);

  const channel = new Channel();
  let timer = 0;
  let at = -1;

  function close() {
    clearTimeout(timer);
    channel.stop();
    list.hidden = true;
    said.textContent = "";
    input.setAttribute("aria-expanded", "false");
    mark(-1);
  }

  function mark(place) {
    list.children[at]?.setAttribute("aria-selected", "false");
    at = place;
    const option = list.children[at];
    option?.setAttribute("aria-selected", "true");
    option?.scrollIntoView({ block: "nearest" });
    if (option) input.setAttribute("aria-activedescendant", option.id);
    else input.removeAttribute("aria-activedescendant");
  }

  async function open() {
    let found;
    try {
      found = await look(input.value.trim(), channel.next());
    } catch {
      return; // no suggestions are no problem: the question itself will tell
    }
    if (document.activeElement !== input) return;
    at = -1;
    input.removeAttribute("aria-activedescendant");
    list.replaceChildren(
      ...found.map(({ key, text }, place) => {
        const option = make(
          "li",
          { id: `${id}-${place}`, role: "option", "aria-selected": "false" },
          named(key, text),
        );
        option.picked = String(key);
        return option;
      }),
    );
    list.hidden = found.length === 0;
    input.setAttribute("aria-expanded", String(found.length > 0));
    said.textContent = found.length
      ? `${count(found.length, "suggestion")}, arrow keys to choose`
      : "no suggestions";
  }

  function take(option) {
    const key = option.picked;
    close();
    input.value = key;
    pick(key);
  }

  input.addEventListener("input", () => {
    clearTimeout(timer);
    if (input.value.trim() === "") close();
    else timer = setTimeout(open, PAUSE);
  });
  input.addEventListener("keydown", async (event) => {
    if (event.isComposing) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const down = event.key === "ArrowDown";
      if (list.hidden) await open();
      const last = list.children.length - 1;
      if (!list.hidden) mark(down ? (at >= last ? 0 : at + 1) : at <= 0 ? last : at - 1);
    } else if (event.key === "Enter") {
      if (at >= 0 && !list.hidden) {
        event.preventDefault();
        take(list.children[at]);
      } else close();
    } else if (event.key === "Escape" && !list.hidden) {
      event.preventDefault();
      close();
    } else if (event.key === "Tab") close();
  });
  input.addEventListener("blur", close);
  list.addEventListener("pointerdown", (event) => event.preventDefault()); // the input keeps the focus
  list.addEventListener("click", (event) => {
    const option = event.target.closest("[role=option]");
    if (option) take(option);
  });
  return { close };
}
