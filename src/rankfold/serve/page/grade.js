// A row for a model that grades: a form made from its columns, and the grade that the row gets.

import { make } from "./dom.js";
import { post, under } from "./server.js";

const NOT_KNOWN = "not known";
const MENU = 40; // levels in a menu; more are completed while typing

/** A field for each column: {name, levels if it is not a number}. */
export function fields(columns) {
  return columns.map(({ name, levels }, place) => {
    const id = `column-${place}`;
    const input = levels ? choice(id, levels) : number(id);
    input.column = name;
    const label = make("label", { for: id }, make("bdi", {}, name));
    return make("div", {}, label, input, completing(input, levels));
  });
}

const number = (id) =>
  make("input", { id, type: "number", inputMode: "decimal", step: "any", placeholder: NOT_KNOWN });

function choice(id, levels) {
  if (levels.length > MENU)
    return make("input", { id, type: "text", list: `${id}-levels`, placeholder: NOT_KNOWN });
  const options = levels.map((level) => make("option", { value: level }, level));
  return make("select", { id }, make("option", { value: "" }, NOT_KNOWN), options);
}

/** The levels to complete from, where there are too many for a menu. */
function completing(input, levels) {
  if (!input.hasAttribute("list")) return null;
  const options = levels.map((level) => make("option", { value: level }));
  return make("datalist", { id: input.getAttribute("list") }, options);
}

const inputs = (form) => [...form.querySelectorAll(".columns input, .columns select")];

/** What is filled in, as text. */
export const filled = (form) =>
  Object.fromEntries(
    inputs(form)
      .filter((input) => input.value !== "")
      .map((input) => [input.column, input.value]),
  );

export function fill(form, row) {
  for (const input of inputs(form)) input.value = Object.hasOwn(row, input.column) ? row[input.column] : "";
}

/** The score and the grade of a row; numbers go as numbers, what is not filled in is missing. */
export async function grade(asked, columns, signal) {
  const given = columns.filter(({ name }) => Object.hasOwn(asked.row, name));
  const row = Object.fromEntries(
    given.map(({ name, levels }) => [name, levels ? asked.row[name] : Number(asked.row[name])]),
  );
  const body = { rows: [row], fpr: Number(asked.fpr) };
  const { results } = await post(under(asked.model, "grade"), body, signal);
  return results[0];
}

/** The grade among all grades, the lowest first, and the score. */
export function graded(found, grades) {
  const step = (name) =>
    name === found.grade
      ? make("li", { class: "is", "aria-current": "true" }, make("bdi", {}, name))
      : make("li", {}, make("bdi", {}, name));
  const score = found.score === null ? "–" : found.score.toPrecision(4).replace("-", "−");
  return make(
    "div",
    { class: "graded" },
    make(
      "dl",
      {},
      make("div", {}, make("dt", {}, "Grade"), make("dd", { id: "own-grade" }, make("bdi", {}, found.grade))),
      make("div", {}, make("dt", {}, "Score"), make("dd", { id: "own-score" }, score)),
    ),
    make(
      "ol",
      { class: "grades", role: "list", "aria-label": "All grades, the lowest first" },
      grades.map(step),
    ),
  );
}
