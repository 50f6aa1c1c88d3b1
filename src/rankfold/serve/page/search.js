// From a question to its answer: which requests it takes, and what moved when the history changed.

import { get, post, under } from "./server.js";

const DEPTH = 200; // how far down the list of the full history ranks are known
const LIKE = 100; // characters to complete by
const kept = new Map(); // histories and the lists they give: a toggle asks for neither again

export const changed = (asked) => asked.off.length > 0 || asked.add.length > 0;

/** What is on: the history without what was switched off, with what was added. */
export function left(asked, chosen) {
  const off = new Set(asked.off);
  const keys = [...chosen.map((item) => item.key), ...asked.add];
  return [...new Set(keys)].filter((key) => !off.has(key));
}

/**
 * The answer to a question.
 *
 * hits: [{key, score, text}], best first. chosen: [{key, text}], the full history, or null where the
 * question has none. before: the rank of each key by the full history, or null if that is what is shown.
 */
export async function answer(asked, card, signal) {
  if (asked.kind === "text")
    return { hits: await search(asked, { text: asked.key }, signal), chosen: null, before: null };
  if (asked.kind === "candidate")
    return { hits: await like(asked.model, asked.key, asked.k, signal), chosen: null, before: null };
  const seen = { include_seen: asked.seen };
  if (asked.kind === "query" && !changed(asked)) {
    const [hits, chosen] = await Promise.all([
      search(asked, { queries: [asked.key], ...seen }, signal),
      history(asked, signal),
    ]);
    return { hits, chosen, before: null };
  }
  const chosen = asked.kind === "query" ? await history(asked, signal) : asked.keys.map((key) => ({ key }));
  const rest = { ...seen, ...(await own(asked, chosen, card.deepest, signal)) };
  const [hits, before] = await Promise.all([
    search(asked, { history: left(asked, chosen), ...rest }, signal),
    changed(asked) ? ranks(asked, chosen, card.deepest, rest, signal) : null,
  ]);
  return { hits, chosen, before };
}

/** Candidates like one. */
export const like = (model, key, k, signal) => search({ model, k }, { candidates: [key] }, signal);

/** Keys to complete what is typed, or to begin with. */
export async function complete(model, side, words, limit, signal) {
  const { keys } = await get(under(model, "keys"), { side, like: words.slice(0, LIKE), limit }, signal);
  return keys.map(({ key, text }) => ({ key: String(key), text }));
}

async function search(asked, body, signal) {
  const { results } = await post(under(asked.model, "search"), { ...body, k: asked.k }, signal);
  return results[0].candidates.map(({ candidate, score, text }) => ({ key: String(candidate), score, text }));
}

const history = (asked, signal) =>
  keep(["history", asked.model, asked.key], async () => {
    const { candidates } = await get(under(asked.model, "history"), { query: asked.key }, signal);
    return candidates.map(({ candidate, text }) => ({ key: String(candidate), text }));
  });

/**
 * What the query's own list leaves out and that of its history would not: the query itself, where the
 * data links things of one kind. A candidate that happens to have the same key is in both.
 */
async function own(asked, chosen, deepest, signal) {
  if (asked.kind !== "query" || !changed(asked)) return {};
  const deep = { ...asked, k: Math.min(deepest, DEPTH) };
  const [byQuery, byHistory] = await Promise.all([
    keep(["own", asked.model, asked.key], () =>
      search(deep, { queries: [asked.key], include_seen: true }, signal),
    ),
    ranks(deep, chosen, deepest, { include_seen: true }, signal),
  ]);
  return byHistory.has(asked.key) && !byQuery.some((hit) => hit.key === asked.key)
    ? { exclude: [asked.key] }
    : {};
}

/** The rank of each candidate by the full history, as deep as is worth asking for. */
const ranks = (asked, chosen, deepest, rest, signal) => {
  const keys = chosen.map((item) => item.key);
  const k = Math.min(deepest, Math.max(asked.k, DEPTH));
  return keep(["ranks", asked.model, k, rest, keys], async () => {
    const hits = await search({ ...asked, k }, { history: keys, ...rest }, signal);
    return new Map(hits.map((hit, place) => [hit.key, { ...hit, rank: place + 1 }]));
  });
};

async function keep(name, ask) {
  const word = JSON.stringify(name);
  if (!kept.has(word)) {
    if (kept.size > 50) kept.clear();
    kept.set(word, await ask());
  }
  return kept.get(word);
}

/** How a candidate moved against the full history: {sign, short, words}. */
export function move(key, rank, before, off) {
  const was = before.get(key)?.rank;
  if (was === undefined && off.includes(key))
    return { sign: "new", short: "taken out", words: "was in the history" };
  if (was === undefined)
    return { sign: "new", short: "new", words: `new: was not among the first ${before.size}` };
  const by = was - rank;
  if (by === 0) return { sign: "same", short: "=", words: "same place" };
  const places = `${Math.abs(by)} place${Math.abs(by) === 1 ? "" : "s"}`;
  return by > 0
    ? { sign: "up", short: `▲ ${by}`, words: `up ${places}, from ${was}` }
    : { sign: "down", short: `▼ ${-by}`, words: `down ${places}, from ${was}` };
}
