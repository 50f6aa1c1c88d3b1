// The model card: what a model is, what it was learnt from, how good it is, and when it was written.

import { amount, make } from "./dom.js";
import { get, under } from "./server.js";

/** What the page needs of a card. */
export async function readCard(name, signal) {
  const card = await get(under(name, "card"), {}, signal);
  return { ...card, name, columns: card.columns ?? [], grades: card.grades ?? [], deepest: card.limits.k };
}

/** The card as a list of facts, and the settings folded away. */
export function facts(card) {
  const rows = [
    ["Method", card.method],
    ["Learnt from", learnt(card)],
    ...sizes(card),
    ...measured(card),
    ...searched(card.index),
    ["Written", moment(card.written)],
  ];
  const settings = Object.entries(card.config ?? {}).map(([name, value]) => [name, plain(value)]);
  const versions = Object.entries(card.versions ?? {}).map(([name, value]) => [name, plain(value)]);
  return make(
    "div",
    {},
    list(rows.filter(([, value]) => value)),
    folded("Settings", settings),
    folded("Versions", versions),
  );
}

const list = (rows) =>
  make(
    "dl",
    {},
    rows.map(([name, value]) =>
      make("div", {}, make("dt", {}, name), make("dd", {}, make("bdi", {}, value))),
    ),
  );

const folded = (title, rows) =>
  rows.length ? make("details", {}, make("summary", {}, title), list(rows)) : null;

function learnt(card) {
  const kinds = {
    interactions: "pairs of queries and candidates",
    texts: "texts and their candidates",
    graded: "graded rows",
  };
  const data = card.notes?.data; // its fingerprint
  const kind = kinds[card.data_kind] ?? card.data_kind ?? "";
  return typeof data === "string" && data ? `${kind} (data ${data.slice(0, 12)})` : kind;
}

function sizes(card) {
  const rows = Object.entries(card.sizes ?? {}).filter(([, value]) => Number.isFinite(value) && value > 0);
  return rows.map(([name, value]) => [capital(name), amount(value)]);
}

/** How good it was when it was fitted. */
function measured(card) {
  const known = Object.entries(card.metrics ?? {}).filter(([, value]) => Number.isFinite(value));
  return known.map(([name, value]) => [name, value.toFixed(4)]);
}

/** How candidates are searched, and how much of the exact lists that finds. */
function searched(index) {
  if (!index?.kind) return [];
  const known = Object.entries(index.recall ?? {}).map(
    ([k, value]) => `${(100 * value).toFixed(1)}% of the first ${k}`,
  );
  const recall = index.kind === "exact" ? "100%: every candidate is compared" : known.join(", ");
  return [
    ["Search", index.kind],
    ["Recall", recall],
  ];
}

function moment(written) {
  const date = new Date(written ?? "");
  return Number.isNaN(date.getTime())
    ? written
    : date.toLocaleString("en-GB", { dateStyle: "long", timeStyle: "short" });
}

const plain = (value) => (typeof value === "string" ? value : JSON.stringify(value));
const capital = (word) => word.charAt(0).toUpperCase() + word.slice(1);
