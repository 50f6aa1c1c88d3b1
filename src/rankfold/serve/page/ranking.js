// A ranking: scores, bars, moves, and the details of a candidate.

import { formatNumber, hiddenText, keyAndText, make, pluralize } from "./dom.js";
import { findSimilar, move } from "./search.js";

const SIMILAR_K = 10;
const MAX_GONE = 12; // candidates named that left the ranking
const LONG_TEXT = 60; // letters; a longer text may not fit beside its key
const MAX_FACTS = 4; // features beside a result; its details have them all

/**
 * The ranking as {element, moves: text}.
 *
 * options: before (ranks by the full history, or null), off, k, model, accepts (the inputs that the
 * model accepts), withFeatures (of candidates), address(request parts) -> href, onAdd(key).
 */
export function rankingElement(hits, options) {
  const scale = scoreScale(hits.map((hit) => hit.score));
  const { before, off } = options;
  const moves = before && hits.map((hit, index) => move(hit.key, index + 1, before, off));
  const list = make("ol", { class: "hits", role: "list" });
  list.append(...hits.map((hit, index) => hitElement(hit, index + 1, scale, moves?.[index], options)));
  list.addEventListener("click", (event) => {
    const button = event.target.closest("button.name");
    if (button) toggleDetails(button, options);
  });
  const gone = before && goneElement(hits, options);
  return { element: make("div", {}, list, gone || null), moves: moves ? countMoves(moves) : "" };
}

function hitElement(hit, rank, scale, moved, options) {
  const accepts = (input) => options.accepts.includes(input);
  const hasDetails = ["candidates", "history", "text"].some(accepts) || isLong(hit.text);
  const name = make(
    hasDetails ? "button" : "span",
    { class: "name", ...(hasDetails && { type: "button", "aria-expanded": "false" }) },
    keyAndText(hit.key, hit.text),
  );
  const item = make(
    "li",
    { class: "hit" },
    make("span", { class: "rank" }, hiddenText("rank "), formatNumber(rank)),
    name,
    factsElement(hit.features, MAX_FACTS),
    moved
      ? make(
          "span",
          { class: `move ${moved.direction}`, title: moved.description },
          make("span", { "aria-hidden": "true" }, moved.label),
          hiddenText(moved.description),
        )
      : null,
    scoreElement(hit.score, scale, hit.probability),
  );
  item.hit = hit;
  return item;
}

/** The known features of a candidate: [[name, value as text]]. */
const factsOf = (features) =>
  Object.entries(features ?? {})
    .filter(([, value]) => value !== null)
    .map(([name, value]) => [name, typeof value === "number" ? formatNumber(value) : value]);

/** Features with their values; null without any. */
function factsElement(features, most) {
  const facts = factsOf(features)
    .slice(0, most)
    .map(([name, value]) =>
      make("div", {}, make("dt", {}, make("bdi", {}, name)), make("dd", {}, make("bdi", {}, value))),
    );
  return facts.length ? make("dl", { class: "facts" }, facts) : null;
}

/** The values of features in one line. */
const factsText = (features) =>
  factsOf(features)
    .map(([, value]) => value)
    .join(" · ");

const isLong = (text) => (text ?? "").length > LONG_TEXT;

function scoreElement(value, scale, probability) {
  const bar = make("span", { class: "bar", "aria-hidden": "true" });
  bar.style.setProperty("--share", scale.share(value));
  const likely = probability === undefined ? null : make("span", { class: "likely" }, percent(probability));
  return make("span", { class: "score" }, hiddenText("score "), scale.format(value), bar, likely);
}

const percent = (share) => `${Math.round(100 * share)} % right`;

/** Four digits for the largest score; bars start at 0, or at the lowest score if that is negative. */
export function scoreScale(scores) {
  const known = scores.filter((score) => score !== null);
  const [high, low] = [Math.max(...known), Math.min(...known, 0)];
  const largest = Math.max(...known.map(Math.abs), 1e-12);
  const decimals = Math.min(8, Math.max(0, 3 - Math.floor(Math.log10(largest))));
  return {
    share: (value) =>
      value !== null && high > low ? Math.max(0, (value - low) / (high - low)).toFixed(4) : "0",
    format: (value) => (value === null ? "–" : value.toFixed(decimals).replace("-", "−")),
  };
}

/** The candidates that were in the top k by the full history and no longer are. */
function goneElement(hits, options) {
  const present = new Set(hits.map((hit) => hit.key));
  const gone = [...options.before.values()].filter((hit) => hit.rank <= options.k && !present.has(hit.key));
  if (!gone.length) return null;
  const names = gone
    .slice(0, MAX_GONE)
    .flatMap((hit) => [make("bdi", { class: "key" }, hit.key), ` (was ${formatNumber(hit.rank)}), `]);
  names[names.length - 1] = names
    .at(-1)
    .replace(/, $/, gone.length > MAX_GONE ? ` and ${formatNumber(gone.length - MAX_GONE)} more` : "");
  return make("p", { class: "note gone" }, `No longer in the top ${formatNumber(options.k)}: `, names);
}

function countMoves(moves) {
  const count = (direction) => moves.filter((each) => each.direction === direction).length;
  return `${count("up")} up, ${count("down")} down, ${count("new")} new`;
}

// ------------------------------------------------------------------ the details of a candidate

function toggleDetails(button, options) {
  const item = button.closest("li");
  const open = button.getAttribute("aria-expanded") !== "true";
  button.setAttribute("aria-expanded", String(open));
  item.classList.toggle("open", open);
  item.querySelector(".details")?.remove();
  if (open) item.append(detailsElement(item.hit, options));
}

function detailsElement(hit, options) {
  const box = make("div", { class: "details" });
  if (Object.keys(hit.features ?? {}).length > MAX_FACTS) box.append(factsElement(hit.features, Infinity));
  if (isLong(hit.text)) box.append(make("p", { class: "full-text", dir: "auto" }, hit.text));
  const why = make("div", { class: "why", "aria-live": "polite" });
  box.append(why);
  showReasons(hit.key, why, options);
  const actions = [];
  if (options.accepts.includes("history")) {
    const add = () => options.onAdd(hit.key);
    actions.push(make("button", { type: "button", onclick: add }, "Add to the history"));
  }
  if (options.accepts.includes("candidates")) {
    const href = options.address({ kind: "candidate", key: hit.key });
    actions.push(make("a", { href }, "Search for similar candidates"));
    const place = make(
      "div",
      { class: "similar", "aria-live": "polite" },
      make("p", { class: "note" }, "Searching for similar candidates…"),
    );
    box.append(make("h2", {}, "Similar candidates"), place);
    showSimilar(hit.key, place, options);
  }
  box.append(make("p", { class: "actions" }, actions));
  return box;
}

/** What raises the score: bars of the largest contributions. */
async function showReasons(key, place, options) {
  let found = null;
  try {
    found = await options.explain(key);
  } catch {
    return; // a method without explanations: the rest of the details is enough
  }
  if (!found?.because?.length) return;
  const scale = scoreScale(found.because.map((one) => Math.abs(one.score)));
  const rows = found.because.map((one) => {
    const bar = make("span", { class: "bar", "aria-hidden": "true" });
    bar.style.setProperty("--share", scale.share(Math.abs(one.score)));
    const value = `${one.score < 0 ? "−" : "+"}${scale.format(Math.abs(one.score))}`;
    return make(
      "li",
      {},
      make("span", { class: "name" }, keyAndText(String(one.key ?? ""), one.text)),
      make("span", { class: "score" }, value, bar),
    );
  });
  place.replaceChildren(make("h2", {}, "What raises this score"), make("ol", { role: "list" }, rows));
}

async function showSimilar(key, place, options) {
  try {
    const hits = await findSimilar(options.model, key, SIMILAR_K, options.withFeatures);
    const scale = scoreScale(hits.map((hit) => hit.score));
    const rows = hits.map((hit) =>
      make(
        "li",
        {},
        make(
          "a",
          { class: "name", href: options.address({ kind: "candidate", key: hit.key }) },
          keyAndText(hit.key, hit.text ?? factsText(hit.features)),
        ),
        scoreElement(hit.score, scale),
      ),
    );
    place.replaceChildren(
      rows.length ? make("ol", { role: "list" }, rows) : make("p", { class: "note" }, "None."),
      hiddenText(pluralize(rows.length, "similar candidate")),
    );
  } catch (error) {
    const message = [error.message, error.hint].filter(Boolean).join(": ");
    place.replaceChildren(make("p", { class: "note" }, message));
  }
}
