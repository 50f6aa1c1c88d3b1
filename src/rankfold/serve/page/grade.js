// Grading: a form with a field for each column, and the grade of the row.

import { make } from "./dom.js";
import { post, under } from "./server.js";

const UNKNOWN = "unknown";
const MAX_MENU_LEVELS = 40; // longer lists of levels are completed while typing

/** A field for each column; a column with levels is not a number. */
export function columnFields(columns) {
  return columns.map(({ name, levels }, index) => {
    const id = `column-${index}`;
    const input = levels ? levelInput(id, levels) : numberInput(id);
    input.column = name;
    const label = make("label", { for: id }, make("bdi", {}, name));
    return make("div", {}, label, input, levelList(input, levels));
  });
}

const numberInput = (id) =>
  make("input", { id, type: "number", inputMode: "decimal", step: "any", placeholder: UNKNOWN });

function levelInput(id, levels) {
  if (levels.length > MAX_MENU_LEVELS)
    return make("input", { id, type: "text", list: `${id}-levels`, placeholder: UNKNOWN });
  const options = levels.map((level) => make("option", { value: level }, level));
  return make("select", { id }, make("option", { value: "" }, UNKNOWN), options);
}

/** The levels to complete from, if there are too many for a menu. */
function levelList(input, levels) {
  if (!input.hasAttribute("list")) return null;
  const options = levels.map((level) => make("option", { value: level }));
  return make("datalist", { id: input.getAttribute("list") }, options);
}

const inputs = (form) => [...form.querySelectorAll(".columns input, .columns select")];

/** The row in the form, as text; empty fields are left out. */
export const readRow = (form) =>
  Object.fromEntries(
    inputs(form)
      .filter((input) => input.value !== "")
      .map((input) => [input.column, input.value]),
  );

export function fillRow(form, row) {
  for (const input of inputs(form)) input.value = Object.hasOwn(row, input.column) ? row[input.column] : "";
}

/** The score and the grade of a row. */
export async function gradeRow(request, columns, signal) {
  const given = columns.filter(({ name }) => Object.hasOwn(request.row, name));
  const row = Object.fromEntries(
    given.map(({ name, levels }) => [name, levels ? request.row[name] : Number(request.row[name])]),
  );
  const body = { rows: [row], fpr: Number(request.fpr) };
  const { results } = await post(under(request.model, "grade"), body, signal);
  return results[0];
}

/** The grade among all grades, the lowest first, and the score. */
export function gradeElement(result, grades) {
  const step = (name) =>
    name === result.grade
      ? make("li", { class: "current", "aria-current": "true" }, make("bdi", {}, name))
      : make("li", {}, make("bdi", {}, name));
  const score = result.score === null ? "–" : result.score.toPrecision(4).replace("-", "−");
  return make(
    "div",
    { class: "graded" },
    make(
      "dl",
      {},
      make(
        "div",
        {},
        make("dt", {}, "Grade"),
        make("dd", { id: "row-grade" }, make("bdi", {}, result.grade)),
      ),
      make("div", {}, make("dt", {}, "Score"), make("dd", { id: "row-score" }, score)),
    ),
    make(
      "ol",
      { class: "grades", role: "list", "aria-label": "All grades, the lowest first" },
      grades.map(step),
    ),
  );
}
