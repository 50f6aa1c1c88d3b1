// Making elements. Everything from the server goes through here, and only as text.

const ATTRIBUTES = new Set(["role", "for", "list", "dir"]); // and all names with a dash

/** An element with properties or attributes, and children. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
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

/** Text for screen readers only. */
export const hiddenText = (text) => make("span", { class: "visually-hidden" }, text);

/** A key, and its text if that differs. */
export function keyAndText(key, text) {
  const label = String(key);
  const element = make("bdi", { class: "key" }, label);
  return text && text !== label ? [element, make("bdi", { class: "text" }, text)] : [element];
}

const numberFormat = new Intl.NumberFormat("en");
export const formatNumber = (number) => numberFormat.format(number);

/** "1 result", "2 results". */
export const pluralize = (number, noun) => `${formatNumber(number)} ${noun}${number === 1 ? "" : "s"}`;
