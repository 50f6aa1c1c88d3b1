// Questions to the server, and what can go wrong with them.

const ROOT = new URL("../", import.meta.url);
let token = ""; // in memory alone: gone with the page

export function useToken(given) {
  token = given;
}

/** What a person can read about a question that failed. */
export class Problem extends Error {
  constructor(message, hint, status = 0) {
    super(message);
    Object.assign(this, { hint, status });
  }
}

/** The address of a model's part of the server; the first model is at the root. */
export const under = (model, path) => (model ? `models/${encodeURIComponent(model)}/${path}` : path);

export function get(path, parameters = {}, signal) {
  const address = new URL(path, ROOT);
  address.search = new URLSearchParams(parameters).toString();
  return send(address, { signal });
}

export function post(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return send(new URL(path, ROOT), { method: "POST", headers, body: JSON.stringify(body), signal });
}

async function send(address, how) {
  const headers = { ...how.headers, ...(token && { Authorization: `Bearer ${token}` }) };
  let answer, body;
  try {
    answer = await fetch(address, { ...how, headers });
    body = await answer.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("the server does not answer", "is it still running, and are you connected?");
  }
  how.signal?.throwIfAborted(); // it was all there, but came too late
  if (answer.ok) return parse(body);
  throw problem(answer, body);
}

function problem(answer, body) {
  try {
    const { error, hint } = JSON.parse(body);
    if (typeof error === "string") return new Problem(error, hint, answer.status);
  } catch {
    // not from rankfold: a proxy, say
  }
  return new Problem(`the server answered ${answer.status} ${answer.statusText}`.trim(), "", answer.status);
}

/** JSON in which an integer too large for a number stays as it is written: keys may be that large. */
export function parse(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_name, value, context) =>
    typeof value === "number" &&
    context?.source &&
    /^-?\d+$/.test(context.source) &&
    !Number.isSafeInteger(value)
      ? context.source
      : value,
  );
}

/** One question at a time: a new one makes the server's answer to the last one go unread. */
export class Channel {
  #current = null;

  next() {
    this.#current?.abort();
    this.#current = new AbortController();
    return this.#current.signal;
  }

  stop() {
    this.#current?.abort();
  }
}
