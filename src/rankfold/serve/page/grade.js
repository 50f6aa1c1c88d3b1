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

/** The typical value of each column, as text: where a form starts. */
export const typicalRow = (columns) =>
  Object.fromEntries(
    columns.filter(({ typical }) => (typical ?? null) !== null).map(({ name, typical }) => [name, String(typical)]),
  );

/** A row of texts with numbers where columns have no levels. */
export function typedRow(row, columns) {
  const given = columns.filter(({ name }) => Object.hasOwn(row, name));
  return Object.fromEntries(given.map(({ name, levels }) => [name, levels ? row[name] : Number(row[name])]));
}

/** The score, the grade, its probabilities and what moved the score of a row. */
export async function gradeRow(request, card, signal) {
  const row = typedRow(request.row, card.columns);
  const body = { rows: [row], fpr: Number(request.fpr), explain: Boolean(card.explains) };
  if (request.confidence) body.confidence = Number(request.confidence);
  const { results } = await post(under(request.model, "grade"), body, signal);
  return results[0];
}

/** The grade and the score, the probability of each grade, and the columns that moved the score. */
export function gradeElement(result, grades) {
  return make(
    "div",
    { class: "graded" },
    make(
      "dl",
      {},
      fact("Grade", "row-grade", make("bdi", {}, result.grade)),
      fact("Score", "row-score", result.score === null ? "–" : plain(result.score)),
    ),
    make(
      "ol",
      { class: "grades", role: "list", "aria-label": "All grades, the lowest first" },
      grades.map((name) => gradeItem(name, result)),
    ),
    explanation(result.explanation),
  );
}

const fact = (title, id, value) => make("div", {}, make("dt", {}, title), make("dd", { id }, value));

function gradeItem(name, result) {
  const p = result.probabilities?.[name];
  const current = name === result.grade ? { class: "current", "aria-current": "true" } : {};
  const share = p === undefined ? null : make("span", { class: "probability" }, percent(p));
  return make("li", current, make("bdi", {}, name), share);
}

/** Each column with a bar, to the right if it raised the score. */
function explanation(columns) {
  if (!columns?.length) return null;
  const widest = Math.max(...columns.map(({ contribution }) => Math.abs(contribution))) || 1;
  return make(
    "div",
    { class: "moved" },
    make("h2", {}, "What moved the score"),
    make(
      "ul",
      { role: "list" },
      columns.map(({ column, contribution }) => {
        const bar = make("span", { class: contribution < 0 ? "move-bar down" : "move-bar up" });
        bar.style.setProperty("--share", Math.abs(contribution) / widest);
        const value = make("span", {}, `${contribution > 0 ? "+" : ""}${plain(contribution)}`);
        return make("li", {}, make("bdi", {}, column), bar, value);
      }),
    ),
    make("p", { class: "note" }, "Compared with typical values of the column in the training rows."),
  );
}

const plain = (number) => number.toPrecision(4).replace("-", "−");
const percent = (p) => `${(100 * p).toFixed(p < 0.1 ? 1 : 0)}%`;
