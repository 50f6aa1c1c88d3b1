// From a request to its ranking: the calls it takes, and how ranks move when the history changes.

import { typedRow } from "./grade.js";
import { get, post, under } from "./server.js";

const COMPARED_DEPTH = 200; // ranks of the full history's ranking that are compared
const MAX_LIKE_LENGTH = 100;
const CACHE_SIZE = 50;
const cache = new Map(); // histories and their rankings: a toggle does not fetch them again

export const isChanged = (request) => request.off.length > 0 || request.add.length > 0;

/** The changed history: without the entries that are off, with the added ones. */
export function activeKeys(request, fullHistory) {
  const off = new Set(request.off);
  const keys = [...fullHistory.map((entry) => entry.key), ...request.add];
  return [...new Set(keys)].filter((key) => !off.has(key));
}

/**
 * The ranking for a request.
 *
 * hits: [{key, score, probability, text, features}], best first. fullHistory: [{key, text}], or null if the request has no
 * history. before: the rank of each key by the full history, or null if the history is unchanged.
 */
export async function search(asked, card, signal) {
  const request = { ...asked, withFeatures: card.filters.length > 0 };
  if (request.kind === "text") {
    const hits = await fetchHits(request, { text: request.key }, signal);
    return { hits, fullHistory: null, before: null };
  }
  if (request.kind === "features") {
    const hits = await fetchHits(request, { features: typedRow(readFeatures(request), card.features) }, signal);
    return { hits, fullHistory: null, before: null };
  }
  if (request.kind === "candidate") {
    const hits = await fetchHits(request, { candidates: [request.key] }, signal);
    return { hits, fullHistory: null, before: null };
  }
  const seen = { include_seen: request.includeSeen };
  if (request.kind === "query" && !isChanged(request)) {
    const [hits, fullHistory] = await Promise.all([
      fetchHits(request, { queries: [request.key], ...seen }, signal),
      fetchHistory(request, signal),
    ]);
    return { hits, fullHistory, before: null };
  }
  const fullHistory =
    request.kind === "query" ? await fetchHistory(request, signal) : request.keys.map((key) => ({ key }));
  const filters = { ...seen, ...(await excludeItself(request, fullHistory, card.maxK, signal)) };
  const [hits, before] = await Promise.all([
    fetchHits(request, { history: activeKeys(request, fullHistory), ...filters }, signal),
    isChanged(request) ? fetchRanks(request, fullHistory, card.maxK, filters, signal) : null,
  ]);
  return { hits, fullHistory, before };
}

/** What raises the score of one candidate: {because: [{key, text, score}], rest, exact}, or null. */
export async function explain(request, fullHistory, key, signal) {
  if (["candidate", "features"].includes(request.kind)) return null;
  const input = { text: { text: request.key }, query: { queries: [request.key], include_seen: true } }[request.kind];
  const changed = request.kind === "history" || isChanged(request);
  const body = changed ? { history: activeKeys(request, fullHistory ?? []), include_seen: true } : input;
  const one = { ...body, allow: [key], explain: true, k: 1 };
  const { results } = await post(under(request.model, "search"), one, signal);
  return results[0].candidates[0] ?? null;
}

/** The features of a request, as text by name; its key is their JSON. */
export function readFeatures(request) {
  try {
    const row = JSON.parse(request.key);
    return row !== null && typeof row === "object" ? row : {};
  } catch {
    return {};
  }
}

/** Candidates similar to one. */
export const findSimilar = (model, key, k, withFeatures, signal) =>
  fetchHits({ model, k, withFeatures }, { candidates: [key] }, signal);

/** Keys that complete the input; for an empty input, the first ones. */
export async function complete(model, side, input, limit, signal) {
  const like = input.slice(0, MAX_LIKE_LENGTH);
  const { keys } = await get(under(model, "keys"), { side, like, limit }, signal);
  return keys.map(({ key, text }) => ({ key: String(key), text }));
}

async function fetchHits(request, body, signal) {
  const rules = {
    ...(request.where && { where: request.where }),
    ...(request.diversity && { diversity: request.diversity }),
    ...(request.thresholds && { thresholds: "f1" }),
    ...(request.withFeatures && { with_features: true }),
  };
  const { results } = await post(under(request.model, "search"), { ...body, ...rules, k: request.k }, signal);
  return results[0].candidates.map((one) => ({ ...one, key: String(one.candidate) }));
}

const fetchHistory = (request, signal) =>
  cached(["history", request.model, request.key], async () => {
    const { candidates } = await get(under(request.model, "history"), { query: request.key }, signal);
    return candidates.map(({ candidate, text }) => ({ key: String(candidate), text }));
  });

/**
 * Exclude the query itself where its own ranking does: the data links queries among each other, and
 * a query is never its own candidate. A candidate that only happens to have the same key stays.
 */
async function excludeItself(request, fullHistory, maxK, signal) {
  if (request.kind !== "query" || !isChanged(request)) return {};
  const deep = { ...request, where: "", diversity: 0, thresholds: false, k: Math.min(maxK, COMPARED_DEPTH) };
  const [byQuery, byHistory] = await Promise.all([
    cached(["query", request.model, request.key], () =>
      fetchHits(deep, { queries: [request.key], include_seen: true }, signal),
    ),
    fetchRanks(deep, fullHistory, maxK, { include_seen: true }, signal),
  ]);
  return byHistory.has(request.key) && !byQuery.some((hit) => hit.key === request.key)
    ? { exclude: [request.key] }
    : {};
}

/** The rank of each candidate by the full history, down to the compared depth. */
const fetchRanks = (request, fullHistory, maxK, filters, signal) => {
  const keys = fullHistory.map((entry) => entry.key);
  const k = Math.min(maxK, Math.max(request.k, COMPARED_DEPTH));
  return cached(["ranks", request.model, k, request.where, request.diversity, filters, keys], async () => {
    const hits = await fetchHits({ ...request, k }, { history: keys, ...filters }, signal);
    return new Map(hits.map((hit, index) => [hit.key, { ...hit, rank: index + 1 }]));
  });
};

async function cached(parts, fetch) {
  const name = JSON.stringify(parts);
  if (!cache.has(name)) {
    if (cache.size > CACHE_SIZE) cache.clear();
    cache.set(name, await fetch());
  }
  return cache.get(name);
}

/** How a candidate moved compared with the full history: {direction, label, description}. */
export function move(key, rank, before, off) {
  const was = before.get(key)?.rank;
  if (was === undefined && off.includes(key))
    return { direction: "new", label: "switched off", description: "was in the history" };
  if (was === undefined)
    return { direction: "new", label: "new", description: `new: was not in the top ${before.size}` };
  const by = was - rank;
  if (by === 0) return { direction: "same", label: "=", description: "same rank" };
  const ranks = `${Math.abs(by)} rank${Math.abs(by) === 1 ? "" : "s"}`;
  return by > 0
    ? { direction: "up", label: `▲ ${by}`, description: `up ${ranks}, from ${was}` }
    : { direction: "down", label: `▼ ${-by}`, description: `down ${ranks}, from ${was}` };
}
