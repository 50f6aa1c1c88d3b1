// The page: it reads a question from the form or the address, asks, and shows the answer.

import { current, KINDS, note, question, write } from "./address.js";
import { answer, complete } from "./asking.js";
import { combobox } from "./combobox.js";
import { facts, readCard } from "./card.js";
import { count, find, make, named } from "./dom.js";
import { fields, fill, filled, grade, graded } from "./grade.js";
import { historyPanel, joined, pasted, switched, union } from "./history.js";
import { problemBox } from "./problem.js";
import { ranking } from "./ranking.js";
import { Channel, get, Problem } from "./server.js";

const ASKS = { query: "queries", history: "history", text: "text", candidate: "candidates" };
const TITLES = { query: "Query", history: "History", text: "Text", candidate: "Similar to" };
const can = (kind) => card.asks.includes(ASKS[kind]);
const LATER = 150; // ms before a wait is shown
const LOADING = 2000; // ms between two looks at a server that loads its models

const questions = new Channel();
const showHistory = historyPanel(find("history"), onHistory);
let models = [];
let card = null; // of the model in use
let asked = question();
let chosen = null; // the full history of what is asked, once it is known

// ------------------------------------------------------------------ beginning

async function start() {
  take(current());
  await attempt(async (signal) => {
    const found = await get("models", {}, signal);
    models = found.models;
    const select = find("model");
    select.replaceChildren(...models.map((name) => make("option", { value: name }, name)));
    find("choice").hidden = models.length < 2;
    await open(signal);
  }, start);
}

/** Take up the model of the question, then the question. */
async function open(signal) {
  const name = models.includes(asked.model) ? asked.model : models[0];
  if (asked.model && asked.model !== name) {
    throw new Problem(`there is no model ${asked.model}`, `choose from ${models.join(", ")}`, 404);
  }
  find("model").value = name;
  if (card?.name !== name) {
    card = await readCard(name, signal);
    arrange();
  }
  setForm();
  await show(signal);
}

/** What the page offers, by what the model can do. */
function arrange() {
  const kinds = KINDS.filter(can);
  find("ask").hidden = !kinds.length;
  find("grade").hidden = !card.asks.includes("rows");
  find("kinds").hidden = kinds.length < 2;
  find("kinds").replaceChildren(
    find("kinds").firstElementChild,
    ...kinds.map((kind) =>
      make(
        "label",
        {},
        make("input", { type: "radio", name: "kind", value: kind, onchange: () => setKind(kind) }),
        make("span", {}, TITLES[kind]),
      ),
    ),
  );
  find("k").max = card.deepest;
  find("ks").replaceChildren(
    ...[10, 25, 100, 1000].filter((k) => k <= card.deepest).map((value) => make("option", { value })),
  );
  find("rates").replaceChildren(
    ...["0.001", "0.01", "0.05", "0.1"].map((value) => make("option", { value })),
  );
  find("columns").replaceChildren(...fields(card.columns));
  find("facts").replaceChildren(facts(card));
}

/** The form as the question has it. */
function setForm() {
  setKind(asked.kind && can(asked.kind) ? asked.kind : ["text", ...KINDS].find(can));
  for (const kind of ["query", "text", "candidate"]) find(kind).value = asked.kind === kind ? asked.key : "";
  find("k").value = asked.k;
  find("seen").checked = asked.seen;
  fill(find("grade"), asked.row ?? {});
  if (asked.fpr) find("fpr").value = asked.fpr;
}

function setKind(kind) {
  for (const radio of find("kinds").querySelectorAll("input")) radio.checked = radio.value === kind;
  for (const field of document.querySelectorAll("[data-kind]")) field.hidden = field.dataset.kind !== kind;
  find("seen-label").hidden = kind !== "query" && kind !== "history";
}

const kind = () => find("kinds").querySelector("input:checked")?.value ?? null;

// ------------------------------------------------------------------ asking

/** Show the answer to the question that is asked; old answers stay until it comes. */
async function show(signal) {
  const title = asked.key.slice(0, 60) || asked.kind || (asked.row ? "grade" : "");
  document.title = [title, card.name, "rankfold"].filter(Boolean).join(" · ");
  if (asked.row) {
    clear(graded(await grade(asked, card.columns, signal), card.grades));
    find("status").textContent = "";
  } else if (asked.kind) await showRanking(signal);
  else await showStart(signal);
}

async function showRanking(signal) {
  const began = performance.now();
  const found = await answer(asked, card, signal);
  const took = Math.max(1, Math.round(performance.now() - began));
  chosen = found.chosen;
  find("history").inert = false;
  const how = { before: found.before, off: asked.off, k: asked.k, model: asked.model, asks: card.asks };
  how.address = (parts) => write(question({ model: asked.model, k: asked.k, ...parts })) || "?";
  how.act = onAdd;
  const list = ranking(found.hits, how);
  clear(list.element);
  showHistory(asked, chosen, card.asks.includes("history"));
  const words = found.hits.length ? count(found.hits.length, "candidate") : "No candidate is left to rank";
  const moved = list.words && `; against the full history ${list.words}`;
  find("status").textContent = `${words} in ${took} ms${moved}`;
}

/** Something to begin with: a few keys that the model knows. */
async function showStart(signal) {
  clear();
  find("status").textContent = "";
  const first = KINDS.find((kind) => kind !== "text" && can(kind));
  if (!first) {
    const images =
      "This model grades images, which a form cannot take: rankfold predict reads a folder of them.";
    const words = card.asks.length ? "Fill in what is known of a row." : images;
    find("start").replaceChildren(make("p", { class: "note" }, words));
    return;
  }
  const keys = await complete(asked.model, first === "query" ? "query" : "candidate", "", 8, signal);
  const links = keys.map(({ key, text }) => {
    const href = write(question({ model: asked.model, kind: first, key, keys: [key] }));
    return make("li", {}, make("a", { class: "chip", href }, make("span", {}, named(key, text))));
  });
  find("start").replaceChildren(
    make("p", { class: "note" }, "Begin with one of these, or type:"),
    make("ul", { class: "chips", role: "list" }, links),
  );
}

/** Leave nothing of the last answer, and put this in its place. */
function clear(element) {
  const held = find("ranking").contains(document.activeElement);
  for (const id of ["problem", "start", "ranking"]) find(id).replaceChildren();
  if (element) find("ranking").append(element);
  if (!asked.kind) showHistory(asked, null, false);
  if (held) find("answer").focus({ preventScroll: true }); // not back to the top of the page
}

/** Do something that asks the server: only the newest counts, waits are shown, problems told. */
async function attempt(work, again) {
  const signal = questions.next();
  const wait = setTimeout(() => signal.aborted || busy(true), LATER);
  find("answer").dataset.state = "asking";
  try {
    await work(signal);
    if (!signal.aborted) busy(false, "answered");
  } catch (problem) {
    if (signal.aborted) return;
    tell(problem, again);
    busy(false, "failed");
  } finally {
    clearTimeout(wait);
  }
}

function busy(is, state = "asking") {
  find("progress").hidden = !is;
  find("answer").setAttribute("aria-busy", String(is));
  find("answer").dataset.state = state;
}

/** From now on this is the question. The chips of another one wait for the answer. */
function take(next) {
  const same = ["model", "kind", "key"].every((part) => next[part] === asked[part]);
  if (!same || next.kind === "history")
    chosen = next.kind === "history" ? next.keys.map((key) => ({ key })) : null;
  asked = next;
  find("history").inert = chosen === null;
}

function ask(parts, how) {
  take(question(parts));
  note(asked, how);
  attempt(show, () => ask(asked, { replace: true }));
}

// ------------------------------------------------------------------ problems

/** In the place of the answer; the form stays as it is. */
function tell(problem, again) {
  clear();
  find("status").textContent = "";
  showHistory(asked, chosen, Boolean(card?.asks.includes("history")));
  const box = problemBox(problem, again);
  find("problem").replaceChildren(box);
  if (problem.status === 503 && !card) setTimeout(() => find("problem").contains(box) && again(), LOADING);
}

// ------------------------------------------------------------------ what a person does

function fromForm() {
  const to = kind();
  const same = to === asked.kind;
  const parts = { model: asked.model, kind: to, k: Number(find("k").value), seen: find("seen").checked };
  if (to === "history") return { ...parts, keys: same ? asked.keys : [], off: same ? asked.off : [] };
  const key = to === "text" ? find(to).value : find(to).value.trim();
  const kept = same && key === asked.key ? { off: asked.off, add: asked.add } : {};
  return { ...parts, key, ...kept };
}

function onSubmit(event) {
  event.preventDefault();
  const parts = fromForm();
  if (parts.kind === "history") {
    const key = find("item").value.trim();
    find("item").value = "";
    ask({ ...parts, keys: union(parts.keys, key ? [key] : []) });
  } else if (parts.key.trim() !== "") ask(parts);
  else find(parts.kind).focus();
}

/** A setting changed: ask the same again, if anything was asked. */
function onSetting() {
  if (asked.kind && find("k").reportValidity()) {
    ask({ ...asked, k: Number(find("k").value), seen: find("seen").checked });
  }
}

function onPaste(event) {
  const keys = pasted(event.clipboardData.getData("text"));
  if (keys.length < 2) return;
  event.preventDefault();
  const parts = fromForm();
  ask({ ...parts, keys: union(parts.keys, keys) });
}

function onHistory(change) {
  ask(switched(asked, chosen, change), { replace: true });
  showHistory(asked, chosen, true); // at once: the answer comes later
}

function onAdd(key) {
  ask(joined(asked, key));
  setForm();
}

find("ask").addEventListener("submit", onSubmit);
find("k").addEventListener("change", onSetting);
find("seen").addEventListener("change", onSetting);
find("item").addEventListener("paste", onPaste);
find("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) find("ask").requestSubmit();
});
find("grade").addEventListener("submit", (event) => {
  event.preventDefault();
  ask({ model: asked.model, row: filled(find("grade")), fpr: find("fpr").value });
});
find("model").addEventListener("change", (event) => {
  take(question({ model: event.target.value }));
  note(asked);
  attempt(open, start);
});
for (const [id, side] of [
  ["query", "query"],
  ["item", "candidate"],
  ["candidate", "candidate"],
]) {
  combobox(
    find(id),
    (words, signal) => complete(asked.model, side, words, 10, signal),
    () => find("ask").requestSubmit(),
  );
}
/** Links to questions are answered here, without loading the page again. */
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='?']");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  history.pushState(null, "", link.getAttribute("href"));
  take(current());
  attempt(open, start);
  find("answer").scrollIntoView({ block: "nearest" });
});
window.addEventListener("popstate", () => {
  const next = current();
  if (write(next) === write(asked)) return; // a jump within the page
  take(next);
  attempt(open, start);
});
start();
