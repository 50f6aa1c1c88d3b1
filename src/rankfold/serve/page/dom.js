// Making elements. Whatever comes from the server goes through here, and only ever as text.

const ATTRIBUTES = new Set(["role", "for", "list", "dir"]); // and whatever has a dash

/** An element with properties or attributes, and children. */
export function make(tag, given = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.includes("-") || ATTRIBUTES.has(name)) element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

export const find = (id) => document.getElementById(id);

/** Text for screen readers alone. */
export const unseen = (words) => make("span", { class: "unseen" }, words);

/** A key, and the text beside it where there is one. */
export function named(key, text) {
  const label = String(key);
  const own = make("bdi", { class: "key" }, label);
  return text && text !== label ? [own, make("bdi", { class: "text" }, text)] : [own];
}

const amounts = new Intl.NumberFormat("en");
export const amount = (number) => amounts.format(number);

/** "1 result", "2 results". */
export const count = (number, thing) => `${amount(number)} ${thing}${number === 1 ? "" : "s"}`;
