// The model card: method, data, quality, index, settings and versions.

import { formatNumber, make } from "./dom.js";
import { get, under } from "./server.js";

const N_COLUMNS_SHOWN = 8;

/** The card of a model, as the page uses it. */
export async function readCard(name, signal) {
  const card = await get(under(name, "card"), {}, signal);
  return { ...card, name, columns: card.columns ?? [], features: card.features ?? [], grades: card.grades ?? [], filters: card.filters ?? [], maxK: card.limits.k };
}

/** The card as a list of facts, with the settings folded. */
export function cardElement(card) {
  const rows = [
    ["Method", card.method],
    ["Trained on", trainingData(card)],
    ...sizes(card),
    ...metrics(card),
    ...indexRows(card.index),
    ["Most important columns", importantColumns(card.importance)],
    ["Written", formatDate(card.written)],
  ];
  const settings = Object.entries(card.config ?? {}).map(([name, value]) => [name, formatValue(value)]);
  const versions = Object.entries(card.versions ?? {}).map(([name, value]) => [name, formatValue(value)]);
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

function trainingData(card) {
  const kinds = {
    interactions: "pairs of queries and candidates",
    texts: "texts and their candidates",
    graded: "graded rows",
  };
  const fingerprint = card.notes?.data;
  const kind = kinds[card.data_kind] ?? card.data_kind ?? "";
  return typeof fingerprint === "string" && fingerprint
    ? `${kind} (data ${fingerprint.slice(0, 12)})`
    : kind;
}

function sizes(card) {
  const rows = Object.entries(card.sizes ?? {}).filter(([, value]) => Number.isFinite(value) && value > 0);
  return rows.map(([name, value]) => [capitalize(name), formatNumber(value)]);
}

/** The quality measured during the fit. */
function metrics(card) {
  const known = Object.entries(card.metrics ?? {}).filter(([, value]) => Number.isFinite(value));
  return known.map(([name, value]) => [name, value.toFixed(4)]);
}

/** The index, and its recall compared with exact search. */
function indexRows(index) {
  if (!index?.kind) return [];
  const measured = Object.entries(index.recall ?? {}).map(
    ([k, value]) => `${(100 * value).toFixed(1)}% of the top ${k}`,
  );
  const recall = index.kind === "exact" ? "100% (every candidate is scored)" : measured.join(", ");
  return [
    ["Index", index.kind],
    ["Recall", recall],
  ];
}

/** The columns that the model reads most. */
function importantColumns(importance) {
  const names = Object.keys(importance?.columns ?? {});
  return names.slice(0, N_COLUMNS_SHOWN).join(", ");
}

function formatDate(written) {
  const date = new Date(written ?? "");
  return Number.isNaN(date.getTime())
    ? written
    : date.toLocaleString("en-GB", { dateStyle: "long", timeStyle: "short" });
}

const formatValue = (value) => (typeof value === "string" ? value : JSON.stringify(value));
const capitalize = (word) => word.charAt(0).toUpperCase() + word.slice(1);
