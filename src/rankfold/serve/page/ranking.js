// A ranked list: scores, bars, moves, and what opens below a candidate.

import { like, move } from "./asking.js";
import { amount, count, make, named, unseen } from "./dom.js";

const SIMILAR = 10;
const SHOWN_GONE = 12;
const LONG = 60; // letters of a text that may not fit beside a key

/**
 * Show hits.
 *
 * how: before (ranks by the full history, or null), off, k; model; asks (what the model can answer);
 * address(question parts) -> href; act(name, key) for "add" and "off".
 */
export function ranking(hits, how) {
  const scale = scaled(hits.map((hit) => hit.score));
  const moves = how.before && hits.map((hit, place) => move(hit.key, place + 1, how.before, how.off));
  const list = make("ol", { class: "hits", role: "list" });
  list.append(...hits.map((hit, place) => line(hit, place, scale, moves?.[place], how)));
  list.addEventListener("click", (event) => {
    const button = event.target.closest("button.name");
    if (button) toggle(button, how);
  });
  const gone = how.before && left(hits, how);
  return { element: make("div", {}, list, gone || null), words: moves ? tally(moves) : "" };
}

function line(hit, place, scale, moved, how) {
  const opens = how.asks.includes("candidates") || how.asks.includes("history") || isLong(hit.text);
  const name = make(
    opens ? "button" : "span",
    { class: "name", ...(opens && { type: "button", "aria-expanded": "false" }) },
    named(hit.key, hit.text),
  );
  const item = make(
    "li",
    { class: "hit" },
    make("span", { class: "rank" }, unseen("rank "), amount(place + 1)),
    name,
    moved
      ? make(
          "span",
          { class: `move ${moved.sign}`, title: moved.words },
          make("span", { "aria-hidden": "true" }, moved.short),
          unseen(moved.words),
        )
      : null,
    score(hit.score, scale),
  );
  item.hit = hit;
  return item;
}

const isLong = (text) => (text ?? "").length > LONG;

function score(value, scale) {
  const bar = make("span", { class: "bar", "aria-hidden": "true" });
  bar.style.setProperty("--share", scale.share(value));
  return make("span", { class: "score" }, unseen("score "), scale.words(value), bar);
}

/** As many decimals as the largest needs for four digits; bars from 0, or from the lowest if that is below. */
export function scaled(scores) {
  const known = scores.filter((score) => score !== null);
  const [high, low] = [Math.max(...known), Math.min(...known, 0)];
  const largest = Math.max(...known.map(Math.abs), 1e-12);
  const decimals = Math.min(8, Math.max(0, 3 - Math.floor(Math.log10(largest))));
  return {
    share: (value) =>
      value !== null && high > low ? Math.max(0, (value - low) / (high - low)).toFixed(4) : "0",
    words: (value) => (value === null ? "–" : value.toFixed(decimals).replace("-", "−")),
  };
}

/** What was among the first k by the full history, and no longer is. */
function left(hits, how) {
  const here = new Set(hits.map((hit) => hit.key));
  const gone = [...how.before.values()].filter((hit) => hit.rank <= how.k && !here.has(hit.key));
  if (!gone.length) return null;
  const names = gone
    .slice(0, SHOWN_GONE)
    .flatMap((hit) => [make("bdi", { class: "key" }, hit.key), ` (was ${amount(hit.rank)}), `]);
  names[names.length - 1] = names
    .at(-1)
    .replace(/, $/, gone.length > SHOWN_GONE ? ` and ${amount(gone.length - SHOWN_GONE)} more` : "");
  return make("p", { class: "note gone" }, `No longer among the first ${amount(how.k)}: `, names);
}

function tally(moves) {
  const of = (sign) => moves.filter((one) => one.sign === sign).length;
  return `${of("up")} up, ${of("down")} down, ${of("new")} new`;
}

// ------------------------------------------------------------------ what opens below a candidate

function toggle(button, how) {
  const item = button.closest("li");
  const open = button.getAttribute("aria-expanded") !== "true";
  button.setAttribute("aria-expanded", String(open));
  item.classList.toggle("open", open);
  item.querySelector(".more")?.remove();
  if (open) item.append(more(item.hit, how));
}

function more(hit, how) {
  const box = make("div", { class: "more" });
  if (isLong(hit.text)) box.append(make("p", { class: "whole", dir: "auto" }, hit.text));
  const acts = [];
  if (how.act && how.asks.includes("history")) {
    acts.push(make("button", { type: "button", onclick: () => how.act(hit.key) }, "Add to the history"));
  }
  if (how.asks.includes("candidates")) {
    acts.push(make("a", { href: how.address({ kind: "candidate", key: hit.key }) }, "More like this one"));
    const place = make(
      "div",
      { class: "similar", "aria-live": "polite" },
      make("p", { class: "note" }, "Looking for similar candidates…"),
    );
    box.append(make("h3", {}, "Similar candidates"), place);
    similar(hit.key, place, how);
  }
  box.append(make("p", { class: "acts" }, acts));
  return box;
}

async function similar(key, place, how) {
  try {
    const hits = await like(how.model, key, SIMILAR);
    const scale = scaled(hits.map((hit) => hit.score));
    const rows = hits.map((hit) =>
      make(
        "li",
        {},
        make(
          "a",
          { class: "name", href: how.address({ kind: "candidate", key: hit.key }) },
          named(hit.key, hit.text),
        ),
        score(hit.score, scale),
      ),
    );
    place.replaceChildren(
      rows.length ? make("ol", { role: "list" }, rows) : make("p", { class: "note" }, "None."),
      unseen(count(rows.length, "similar candidate")),
    );
  } catch (problem) {
    place.replaceChildren(
      make("p", { class: "note" }, [problem.message, problem.hint].filter(Boolean).join(": ")),
    );
  }
}
