// The history of a query, as checkboxes.

import { formatNumber, keyAndText, make } from "./dom.js";
import { activeKeys } from "./search.js";

const FIRST_CHIPS = 60; // shown before "Show all"

/**
 * A function that shows the history of a request in `place`.
 *
 * onChange is called with {toggle, on}, {remove} or {all}. canChange: whether the model accepts
 * histories.
 */
export function historyPanel(place, onChange) {
  let shown = "";

  return function show(request, fullHistory, canChange) {
    if (!fullHistory) {
      shown = "";
      place.replaceChildren();
      return;
    }
    const added = request.add.filter((key) => !fullHistory.some((entry) => entry.key === key));
    const entries = [...fullHistory, ...added.map((key) => ({ key }))];
    const content = JSON.stringify([request.model, request.kind, request.key, entries, canChange]);
    if (content !== shown) {
      const hadFocus = place.contains(document.activeElement);
      place.replaceChildren(panel(request, entries, canChange, onChange));
      if (hadFocus) place.focus({ preventScroll: true });
    }
    shown = content;
    const nActive = activeKeys(request, fullHistory).length;
    update(place, request, entries.length, nActive, fullHistory.length, canChange);
  };
}

function panel(request, entries, canChange, onChange) {
  const removable = new Set(request.kind === "history" ? request.keys : request.add);
  const chips = entries.map((entry) => chip(entry, canChange, removable.has(entry.key), onChange));
  const rest = chips.slice(FIRST_CHIPS);
  rest.forEach((each) => (each.hidden = true));
  const list = make("ul", { class: "chips", role: "list" }, chips);
  const showAll = make(
    "button",
    { type: "button", class: "link" },
    `Show all ${formatNumber(entries.length)}`,
  );
  showAll.addEventListener("click", () => {
    rest.forEach((each) => (each.hidden = false));
    rest[0].querySelector("input")?.focus();
    showAll.remove();
  });
  const tools = make(
    "p",
    { class: "tools" },
    make("button", { type: "button", class: "link", onclick: () => onChange({ all: "on" }) }, "All on"),
    make("button", { type: "button", class: "link", onclick: () => onChange({ all: "off" }) }, "All off"),
  );
  const title = request.kind === "query" ? ["History of ", make("bdi", {}, request.key)] : ["History"];
  const empty = "The history is empty, so these are the most popular candidates.";
  return make(
    "fieldset",
    { class: "history" },
    make("legend", {}, ...title, " ", make("span", { class: "note count" })),
    entries.length ? null : make("p", { class: "note" }, empty),
    canChange && entries.length > 1 ? tools : null,
    list,
    rest.length ? showAll : null,
    canChange && entries.length
      ? make("p", { class: "note" }, "Switch an entry off to see how the ranking changes.")
      : null,
  );
}

function chip(entry, canChange, isRemovable, onChange) {
  const label = keyAndText(entry.key, entry.text);
  if (!canChange) return make("li", {}, make("span", { class: "chip" }, make("span", {}, label)));
  const checkbox = make("input", {
    type: "checkbox",
    onchange: (event) => onChange({ toggle: entry.key, on: event.target.checked }),
  });
  checkbox.key = entry.key;
  const remove = isRemovable
    ? make(
        "button",
        {
          type: "button",
          class: "remove",
          "aria-label": `Remove ${entry.key}`,
          onclick: () => onChange({ remove: entry.key }),
        },
        "×",
      )
    : null;
  return make("li", {}, make("label", { class: "chip" }, checkbox, make("span", {}, label)), remove);
}

function update(place, request, nEntries, nActive, nFull, canChange) {
  const off = new Set(request.off);
  for (const box of place.querySelectorAll("input[type=checkbox]")) box.checked = !off.has(box.key);
  const isFull = !canChange || (nActive === nFull && !request.add.length);
  const count = `${formatNumber(nActive)} of ${formatNumber(nEntries)} on`;
  place.querySelector(".count").textContent = isFull ? formatNumber(nEntries) : count;
}

// ------------------------------------------------------------------ changes to a history

/** The request after a change from the panel. */
export function applyChange(request, fullHistory, change) {
  if (change.all === "on") return { ...request, off: [] };
  if (change.all === "off") {
    const keys = fullHistory.map((entry) => entry.key);
    return { ...request, off: union(keys, request.add) };
  }
  if (change.remove !== undefined) {
    const lists = [request.keys, request.add, request.off];
    const [keys, add, off] = lists.map((list) => without(list, change.remove));
    return { ...request, keys, add, off };
  }
  const off = without(request.off, change.toggle);
  return { ...request, off: change.on ? off : [...off, change.toggle] };
}

/** The request after a candidate was added to its history, or a new one with that history. */
export function addToHistory(request, key) {
  const off = without(request.off, key);
  if (request.kind === "query") return { ...request, off, add: union(request.add, [key]) };
  if (request.kind === "history") return { ...request, off, keys: union(request.keys, [key]) };
  return { model: request.model, kind: "history", keys: [key], k: request.k };
}

/** Pasted keys: separated by newlines or tabs, otherwise by commas. A key may contain a comma. */
export function splitKeys(text) {
  const separator = /[\n\r\t]/.test(text.trim()) ? /[\n\r\t]+/ : ",";
  return text
    .split(separator)
    .map((key) => key.trim())
    .filter(Boolean);
}

export const union = (some, more) => [...new Set([...some, ...more])];
const without = (keys, key) => keys.filter((each) => each !== key);
