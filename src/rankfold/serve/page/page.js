// The page: it reads a request from the form or the address, sends it, and shows the response.

import { current, format, KINDS, makeRequest, remember } from "./address.js";
import { cardElement, readCard } from "./card.js";
import { combobox } from "./combobox.js";
import { find, keyAndText, make, pluralize } from "./dom.js";
import { errorBox } from "./error.js";
import { columnFields, fillRow, gradeElement, gradeRow, readRow, typicalRow } from "./grade.js";
import { addToHistory, applyChange, historyPanel, splitKeys, union } from "./history.js";
import { rankingElement } from "./ranking.js";
import { complete, explain, readFeatures, search } from "./search.js";
import { get, LatestRequest, ServerError } from "./server.js";

const INPUTS = { query: "queries", history: "history", features: "features", text: "text", candidate: "candidates" };
const TITLES = { query: "Query", history: "History", features: "Features", text: "Text", candidate: "Similar to" };
const accepts = (kind) => card.accepts.includes(INPUTS[kind]);
const PROGRESS_DELAY = 150; // ms before the progress bar is shown
const RELOAD_INTERVAL = 2000; // ms between two tries while the server loads its models
const N_EXAMPLES = 8;

const latest = new LatestRequest();
const showHistory = historyPanel(find("history"), onHistoryChange);
let models = [];
let card = null; // of the current model
let request = makeRequest();
let fullHistory = null; // of the request, once it is known

// ------------------------------------------------------------------ start

async function start() {
  setRequest(current());
  await run(async (signal) => {
    models = (await get("models", {}, signal)).models;
    find("model").replaceChildren(...models.map((name) => make("option", { value: name }, name)));
    find("model-choice").hidden = models.length < 2;
    await open(signal);
  }, start);
}

/** Open the model of the request, then send the request. */
async function open(signal) {
  const name = models.includes(request.model) ? request.model : models[0];
  if (request.model && request.model !== name) {
    throw new ServerError(`there is no model ${request.model}`, `choose from ${models.join(", ")}`, 404);
  }
  find("model").value = name;
  if (card?.name !== name) {
    card = await readCard(name, signal);
    setUpForms();
  }
  fillForms();
  await show(signal);
}

/** Offer what the model can do. */
function setUpForms() {
  const kinds = KINDS.filter(accepts);
  find("search").hidden = !kinds.length;
  find("grade").hidden = !card.accepts.includes("rows");
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
  find("k").max = card.maxK;
  find("ks").replaceChildren(
    ...[10, 25, 100, 1000].filter((k) => k <= card.maxK).map((value) => make("option", { value })),
  );
  find("rates").replaceChildren(
    ...["0.001", "0.01", "0.05", "0.1"].map((value) => make("option", { value })),
  );
  find("columns").replaceChildren(...columnFields(card.columns));
  find("where-field").hidden = !card.filters.length;
  find("where-help").textContent = filterHelp(card.filters);
  find("feature-columns").replaceChildren(...columnFields(card.features));
  find("facts").replaceChildren(cardElement(card));
}

/** The columns to filter by, with an example of each. */
function filterHelp(columns) {
  const written = (name) =>
    /^[\p{L}_][\p{L}\p{N}_]*$/u.test(name) ? name : `"${name.replaceAll('"', '""')}"`;
  const example = ({ name, levels }) =>
    levels?.length ? `${written(name)} = '${levels[0].replaceAll("'", "''")}'` : `${written(name)} < 20`;
  const some = ["number", "text"].map((type) => columns.find((one) => one.type === type)).filter(Boolean);
  return `A condition in SQL, such as ${some.map(example).join(" and ")}. Columns: ${columns
    .map(({ name }) => written(name))
    .join(", ")}.`;
}

/** Put the request into the forms. */
function fillForms() {
  setKind(request.kind && accepts(request.kind) ? request.kind : ["text", ...KINDS].find(accepts));
  for (const kind of ["query", "text", "candidate"]) {
    find(kind).value = request.kind === kind ? request.key : "";
  }
  fillRow(find("features"), request.kind === "features" ? readFeatures(request) : {});
  find("k").value = request.k;
  find("include-seen").checked = request.includeSeen;
  find("where").value = request.where;
  find("diversity").value = request.diversity;
  find("thresholds").checked = request.thresholds;
  if (request.where || request.diversity) find("rules").open = true;
  fillRow(find("grade"), request.row ?? typicalRow(card.columns));
  if (request.fpr) find("fpr").value = request.fpr;
  find("confidence").value = request.confidence ?? "";
}

function setKind(kind) {
  for (const radio of find("kinds").querySelectorAll("input")) radio.checked = radio.value === kind;
  for (const field of document.querySelectorAll("[data-kind]")) field.hidden = field.dataset.kind !== kind;
  find("include-seen-label").hidden = kind !== "query" && kind !== "history";
  find("thresholds-label").hidden = !card.thresholds || (kind !== "query" && kind !== "text");
}

const selectedKind = () => find("kinds").querySelector("input:checked")?.value ?? null;

// ------------------------------------------------------------------ requests

/** Show the response to the current request; the last one stays until it arrives. */
async function show(signal) {
  const title = request.key.slice(0, 60) || request.kind || (request.row ? "grade" : "");
  document.title = [title, card.name, "rankfold"].filter(Boolean).join(" · ");
  if (request.row) {
    clear(gradeElement(await gradeRow(request, card, signal), card.grades));
    find("status").textContent = "";
  } else if (request.kind) await showRanking(signal);
  else await showExamples(signal);
}

async function showRanking(signal) {
  const start = performance.now();
  const result = await search(request, card, signal);
  const ms = Math.max(1, Math.round(performance.now() - start));
  fullHistory = result.fullHistory;
  find("history").inert = false;
  const ranking = rankingElement(result.hits, {
    before: result.before,
    off: request.off,
    k: request.k,
    model: request.model,
    accepts: card.accepts,
    withFeatures: card.filters.length > 0,
    explain: (key) => explain(request, fullHistory, key),
    address: (parts) => format(makeRequest({ model: request.model, k: request.k, ...parts })) || "?",
    onAdd,
  });
  clear(ranking.element);
  showHistory(request, fullHistory, card.accepts.includes("history"));
  const n = result.hits.length;
  const found = n ? pluralize(n, "candidate") : "No candidates to rank";
  const moves = ranking.moves && `. Compared with the full history: ${ranking.moves}`;
  find("status").textContent = `${found} in ${ms} ms${moves}`;
}

/** Some known keys to start with. */
async function showExamples(signal) {
  clear();
  find("status").textContent = "";
  const kind = KINDS.find((each) => each !== "text" && each !== "features" && accepts(each));
  if (!kind) {
    const images = "This model grades images. Use rankfold predict with a folder of images.";
    const text = card.accepts.length
      ? "The form has typical values. Change those that you know, and empty those that are unknown."
      : images;
    find("examples").replaceChildren(make("p", { class: "note" }, text));
    return;
  }
  const side = kind === "query" ? "query" : "candidate";
  const keys = await complete(request.model, side, "", N_EXAMPLES, signal);
  const links = keys.map(({ key, text }) => {
    const href = format(makeRequest({ model: request.model, kind, key, keys: [key] }));
    return make("li", {}, make("a", { class: "chip", href }, make("span", {}, keyAndText(key, text))));
  });
  find("examples").replaceChildren(
    make("p", { class: "note" }, "Some examples:"),
    make("ul", { class: "chips", role: "list" }, links),
  );
}

/** Remove the last response, and show an element in its place. */
function clear(element) {
  const hadFocus = find("ranking").contains(document.activeElement);
  for (const id of ["error", "examples", "ranking"]) find(id).replaceChildren();
  if (element) find("ranking").append(element);
  if (!request.kind) showHistory(request, null, false);
  if (hadFocus) find("results").focus({ preventScroll: true }); // not at the top of the page
}

/** Run a task that calls the server: only the newest counts; shows progress and errors. */
async function run(task, retry) {
  const signal = latest.start();
  const timer = setTimeout(() => signal.aborted || setBusy(true), PROGRESS_DELAY);
  find("results").dataset.state = "loading";
  try {
    await task(signal);
    if (!signal.aborted) setBusy(false, "done");
  } catch (error) {
    if (signal.aborted) return;
    showError(error, retry);
    setBusy(false, "failed");
  } finally {
    clearTimeout(timer);
  }
}

function setBusy(isBusy, state = "loading") {
  find("progress").hidden = !isBusy;
  find("results").setAttribute("aria-busy", String(isBusy));
  find("results").dataset.state = state;
}

/** Show an error in place of the results; the form stays. */
function showError(error, retry) {
  clear();
  find("status").textContent = "";
  showHistory(request, fullHistory, Boolean(card?.accepts.includes("history")));
  const box = errorBox(error, retry);
  find("error").replaceChildren(box);
  if (error.status === 503 && !card) {
    setTimeout(() => find("error").contains(box) && retry(), RELOAD_INTERVAL);
  }
}

/** Make this the current request. The chips of another one wait for the response. */
function setRequest(next) {
  const isSame = ["model", "kind", "key"].every((part) => next[part] === request[part]);
  if (!isSame || next.kind === "history")
    fullHistory = next.kind === "history" ? next.keys.map((key) => ({ key })) : null;
  request = next;
  find("history").inert = fullHistory === null;
}

function submit(parts, options) {
  setRequest(makeRequest(parts));
  remember(request, options);
  run(show, () => submit(request, { replace: true }));
}

// ------------------------------------------------------------------ events

const readOptions = () => ({
  includeSeen: find("include-seen").checked,
  where: find("where").value.trim(),
  diversity: Number(find("diversity").value),
  thresholds: find("thresholds").checked && !find("thresholds-label").hidden,
});

function readForm() {
  const kind = selectedKind();
  const isSame = kind === request.kind;
  const parts = {
    model: request.model,
    kind,
    k: Number(find("k").value),
    ...readOptions(),
  };
  if (kind === "history") {
    return { ...parts, keys: isSame ? request.keys : [], off: isSame ? request.off : [] };
  }
  if (kind === "features") return { ...parts, key: JSON.stringify(readRow(find("features"))) };
  const key = kind === "text" ? find(kind).value : find(kind).value.trim();
  const changes = isSame && key === request.key ? { off: request.off, add: request.add } : {};
  return { ...parts, key, ...changes };
}

function onSubmit(event) {
  event.preventDefault();
  const parts = readForm();
  if (parts.kind === "history") {
    const key = find("history-key").value.trim();
    find("history-key").value = "";
    submit({ ...parts, keys: union(parts.keys, key ? [key] : []) });
  } else if (parts.key.trim() !== "") submit(parts);
  else find(parts.kind).focus();
}

/** An option changed: send the current request again, if there is one. */
function onOption() {
  if (request.kind && find("k").reportValidity()) {
    submit({ ...request, k: Number(find("k").value), ...readOptions() });
  }
}

function onPaste(event) {
  const keys = splitKeys(event.clipboardData.getData("text"));
  if (keys.length < 2) return;
  event.preventDefault();
  const parts = readForm();
  submit({ ...parts, keys: union(parts.keys, keys) });
}

function onHistoryChange(change) {
  submit(applyChange(request, fullHistory, change), { replace: true });
  showHistory(request, fullHistory, true); // before the response arrives
}

function onAdd(key) {
  submit(addToHistory(request, key));
  fillForms();
}

find("search").addEventListener("submit", onSubmit);
find("k").addEventListener("change", onOption);
for (const id of ["include-seen", "where", "diversity", "thresholds"]) find(id).addEventListener("change", onOption);
find("history-key").addEventListener("paste", onPaste);
find("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) find("search").requestSubmit();
});
find("grade").addEventListener("submit", (event) => {
  event.preventDefault();
  submit({ model: request.model, row: readRow(find("grade")), fpr: find("fpr").value, confidence: find("confidence").value });
});
find("model").addEventListener("change", (event) => {
  setRequest(makeRequest({ model: event.target.value }));
  remember(request);
  run(open, start);
});
for (const [id, side] of [
  ["query", "query"],
  ["history-key", "candidate"],
  ["candidate", "candidate"],
]) {
  combobox(
    find(id),
    (input, signal) => complete(request.model, side, input, 10, signal),
    () => find("search").requestSubmit(),
  );
}
/** Follow links to requests without loading the page again. */
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='?']");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  history.pushState(null, "", link.getAttribute("href"));
  setRequest(current());
  run(open, start);
  find("results").scrollIntoView({ block: "nearest" });
});
window.addEventListener("popstate", () => {
  const next = current();
  if (format(next) === format(request)) return; // a jump within the page
  setRequest(next);
  run(open, start);
});
start();
