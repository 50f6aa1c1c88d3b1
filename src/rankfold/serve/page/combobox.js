// Key completion while typing: an ARIA combobox with a list of suggestions.

import { hiddenText, keyAndText, make, pluralize } from "./dom.js";
import { LatestRequest } from "./server.js";

const TYPING_PAUSE = 120; // ms

/**
 * Add completion to an input.
 *
 * findKeys(input, signal) returns [{key, text}]; onPick is called when a key was picked.
 */
export function combobox(input, findKeys, onPick) {
  const id = `${input.id}-list`;
  const list = make("ul", {
    id,
    role: "listbox",
    class: "suggestions",
    hidden: true,
    "aria-label": "Suggestions",
  });
  const status = hiddenText("");
  status.setAttribute("role", "status");
  input.after(list, status);
  const attributes = {
    role: "combobox",
    "aria-autocomplete": "list",
    "aria-expanded": "false",
    "aria-controls": id,
  };
  for (const [name, value] of Object.entries(attributes)) input.setAttribute(name, value);

  const latest = new LatestRequest();
  let timer = 0;
  let selected = -1;

  function close() {
    clearTimeout(timer);
    latest.abort();
    list.hidden = true;
    status.textContent = "";
    input.setAttribute("aria-expanded", "false");
    select(-1);
  }

  function select(index) {
    list.children[selected]?.setAttribute("aria-selected", "false");
    selected = index;
    const option = list.children[selected];
    option?.setAttribute("aria-selected", "true");
    option?.scrollIntoView({ block: "nearest" });
    if (option) input.setAttribute("aria-activedescendant", option.id);
    else input.removeAttribute("aria-activedescendant");
  }

  async function open() {
    let keys;
    try {
      keys = await findKeys(input.value.trim(), latest.start());
    } catch {
      return; // no suggestions; the search itself shows the error
    }
    if (document.activeElement !== input) return;
    selected = -1;
    input.removeAttribute("aria-activedescendant");
    list.replaceChildren(
      ...keys.map(({ key, text }, index) => {
        const option = make(
          "li",
          { id: `${id}-${index}`, role: "option", "aria-selected": "false" },
          keyAndText(key, text),
        );
        option.key = String(key);
        return option;
      }),
    );
    list.hidden = keys.length === 0;
    input.setAttribute("aria-expanded", String(keys.length > 0));
    status.textContent = keys.length
      ? `${pluralize(keys.length, "suggestion")}, use the arrow keys to choose`
      : "no suggestions";
  }

  function pick(option) {
    const key = option.key;
    close();
    input.value = key;
    onPick(key);
  }

  input.addEventListener("input", () => {
    clearTimeout(timer);
    if (input.value.trim() === "") close();
    else timer = setTimeout(open, TYPING_PAUSE);
  });
  input.addEventListener("keydown", async (event) => {
    if (event.isComposing) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const down = event.key === "ArrowDown";
      if (list.hidden) await open();
      const last = list.children.length - 1;
      const next = selected >= last ? 0 : selected + 1;
      const previous = selected <= 0 ? last : selected - 1;
      if (!list.hidden) select(down ? next : previous);
    } else if (event.key === "Enter") {
      if (selected >= 0 && !list.hidden) {
        event.preventDefault();
        pick(list.children[selected]);
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
    if (option) pick(option);
  });
}
