// Calls to the server, and their errors.

const ROOT = new URL("../", import.meta.url);
let token = ""; // only in memory: gone when the page is closed

export function useToken(value) {
  token = value;
}

/** A failed call, with a message and a hint for people. */
export class ServerError extends Error {
  constructor(message, hint, status = 0) {
    super(message);
    Object.assign(this, { hint, status });
  }
}

/** The path of a model's endpoint; the first model is at the root. */
export const under = (model, path) => (model ? `models/${encodeURIComponent(model)}/${path}` : path);

export function get(path, parameters = {}, signal) {
  const url = new URL(path, ROOT);
  url.search = new URLSearchParams(parameters).toString();
  return send(url, { signal });
}

export function post(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return send(new URL(path, ROOT), { method: "POST", headers, body: JSON.stringify(body), signal });
}

async function send(url, options) {
  const headers = { ...options.headers, ...(token && { Authorization: `Bearer ${token}` }) };
  let response, body;
  try {
    response = await fetch(url, { ...options, headers });
    body = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("the server does not respond", "check that it is running and that you are online");
  }
  options.signal?.throwIfAborted(); // the response was complete, but a newer request has started
  if (response.ok) return parseJson(body);
  throw toError(response, body);
}

function toError(response, body) {
  try {
    const { error, hint } = JSON.parse(body);
    if (typeof error === "string") return new ServerError(error, hint, response.status);
  } catch {
    // not from rankfold: from a proxy, for example
  }
  const message = `the server answered ${response.status} ${response.statusText}`.trim();
  return new ServerError(message, "", response.status);
}

/** JSON whose integers beyond 2^53 become text: keys may be that large. */
export function parseJson(text) {
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

/** One request at a time: a new one aborts the last. */
export class LatestRequest {
  #controller = null;

  start() {
    this.#controller?.abort();
    this.#controller = new AbortController();
    return this.#controller.signal;
  }

  abort() {
    this.#controller?.abort();
  }
}
