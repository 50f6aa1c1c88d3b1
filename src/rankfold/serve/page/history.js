// The history of a query as chips that can be switched off and on.

import { left } from "./asking.js";
import { amount, make, named } from "./dom.js";

const FIRST = 60; // chips shown before all are asked for

/**
 * Keep a panel in step with a question.
 *
 * can: whether the model answers changed histories. tell({off, add, keys}) with what changed.
 */
export function historyPanel(place, tell) {
  let shown = "";

  return function show(asked, chosen, can) {
    if (!chosen) {
      shown = "";
      place.replaceChildren();
      return;
    }
    const items = [
      ...chosen,
      ...asked.add.filter((key) => !chosen.some((item) => item.key === key)).map((key) => ({ key })),
    ];
    const word = JSON.stringify([asked.model, asked.kind, asked.key, items, can]);
    if (word !== shown) {
      const held = place.contains(document.activeElement);
      place.replaceChildren(panel(asked, items, can, tell));
      if (held) place.focus({ preventScroll: true });
    }
    shown = word;
    sync(place, asked, items, left(asked, chosen).length, chosen.length, can);
  };
}

function panel(asked, items, can, tell) {
  const removable = new Set(asked.kind === "history" ? asked.keys : asked.add);
  const chips = items.map((item) => chip(item, can, removable.has(item.key), tell));
  const later = chips.slice(FIRST);
  later.forEach((one) => (one.hidden = true));
  const list = make("ul", { class: "chips", role: "list" }, chips);
  const all = make("button", { type: "button", class: "quiet" }, `Show all ${amount(items.length)}`);
  all.addEventListener("click", () => {
    later.forEach((one) => (one.hidden = false));
    later[0].querySelector("input")?.focus();
    all.remove();
  });
  const tools = make(
    "p",
    { class: "tools" },
    make("button", { type: "button", class: "quiet", onclick: () => tell({ all: "on" }) }, "All on"),
    make("button", { type: "button", class: "quiet", onclick: () => tell({ all: "off" }) }, "All off"),
  );
  const head = make(
    "legend",
    {},
    ...(asked.kind === "query" ? ["History of ", make("bdi", {}, asked.key)] : ["History"]),
    " ",
    make("span", { class: "note count" }),
  );
  return make(
    "fieldset",
    { class: "history" },
    head,
    items.length ? null : make("p", { class: "note" }, "It is empty: these are the most popular candidates."),
    can && items.length > 1 ? tools : null,
    list,
    later.length ? all : null,
    can && items.length ? make("p", { class: "note" }, "Switch one off to see how the ranking moves.") : null,
  );
}

function chip(item, can, removable, tell) {
  const name = named(item.key, item.text);
  if (!can) return make("li", {}, make("span", { class: "chip" }, make("span", {}, name)));
  const box = make("input", {
    type: "checkbox",
    onchange: (event) => tell({ toggle: item.key, on: event.target.checked }),
  });
  box.key = item.key;
  const remove = removable
    ? make(
        "button",
        {
          type: "button",
          class: "remove",
          "aria-label": `Remove ${item.key}`,
          onclick: () => tell({ remove: item.key }),
        },
        "×",
      )
    : null;
  return make("li", {}, make("label", { class: "chip" }, box, make("span", {}, name)), remove);
}

function sync(place, asked, items, on, of, can) {
  const off = new Set(asked.off);
  for (const box of place.querySelectorAll("input[type=checkbox]")) box.checked = !off.has(box.key);
  const words =
    on === of && !asked.add.length ? amount(items.length) : `${amount(on)} of ${amount(items.length)} on`;
  place.querySelector(".count").textContent = can ? words : amount(items.length);
}

// ------------------------------------------------------------------ what changes a history

/** The question after a chip was switched or removed, or all of them were switched. */
export function switched(asked, chosen, change) {
  if (change.all === "on") return { ...asked, off: [] };
  if (change.all === "off")
    return {
      ...asked,
      off: union(
        chosen.map((item) => item.key),
        asked.add,
      ),
    };
  if (change.remove !== undefined) {
    const [keys, add, off] = [asked.keys, asked.add, asked.off].map((list) => without(list, change.remove));
    return { ...asked, keys, add, off };
  }
  const off = without(asked.off, change.toggle);
  return { ...asked, off: change.on ? off : [...off, change.toggle] };
}

/** The question after a candidate joined the history: of what is shown, or a new one. */
export function joined(asked, key) {
  const off = without(asked.off, key);
  if (asked.kind === "query") return { ...asked, off, add: union(asked.add, [key]) };
  if (asked.kind === "history") return { ...asked, off, keys: union(asked.keys, [key]) };
  return { model: asked.model, kind: "history", keys: [key], k: asked.k };
}

/** Keys that were pasted: one per line or column, else between commas. A key may have a comma. */
export function pasted(words) {
  const mark = /[\n\r\t]/.test(words.trim()) ? /[\n\r\t]+/ : ",";
  return words
    .split(mark)
    .map((word) => word.trim())
    .filter(Boolean);
}

export const union = (some, more) => [...new Set([...some, ...more])];
const without = (keys, key) => keys.filter((one) => one !== key);
