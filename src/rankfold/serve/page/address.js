// The request in the address bar, so that it can be shared and Back works.

export const KINDS = ["query", "history", "features", "text", "candidate"];
const MAX_LENGTH = 6000; // characters; a longer request is kept only in the browser's history

/** A request: its kind and input, the model, and the changes to the history. */
export function makeRequest(parts = {}) {
  return {
    model: "",
    kind: null,
    key: "",
    keys: [],
    off: [],
    add: [],
    k: 10,
    includeSeen: false,
    where: "",
    diversity: 0,
    thresholds: false,
    row: null,
    fpr: null,
    confidence: null,
    ...parts,
  };
}

export function parse(search) {
  const parameters = new URLSearchParams(search);
  const kind = KINDS.find((name) => parameters.has(name)) ?? null;
  const row = Object.fromEntries(
    [...parameters]
      .filter(([name]) => name.startsWith("row."))
      .map(([name, value]) => [name.slice(4), value]),
  );
  const k = Number(parameters.get("k"));
  return makeRequest({
    model: parameters.get("model") ?? "",
    kind,
    key: kind && kind !== "history" ? parameters.get(kind) : "",
    keys: kind === "history" ? parameters.getAll(kind).filter((key) => key !== "") : [],
    off: parameters.getAll("off"),
    add: parameters.getAll("add"),
    k: Number.isInteger(k) && k > 0 ? k : 10,
    includeSeen: parameters.has("include_seen"),
    where: parameters.get("where") ?? "",
    diversity: Math.min(Math.max(Number(parameters.get("diversity")) || 0, 0), 1),
    thresholds: parameters.has("thresholds"),
    row: parameters.has("fpr") ? row : null,
    fpr: parameters.get("fpr"),
    confidence: parameters.get("confidence"),
  });
}

export function format(request) {
  const parameters = new URLSearchParams();
  const put = (name, values) => values.forEach((value) => parameters.append(name, value));
  if (request.model) put("model", [request.model]);
  if (request.kind === "history") put("history", request.keys.length ? request.keys : [""]);
  else if (request.kind) put(request.kind, [request.key]);
  if (request.kind) {
    put("off", request.off);
    put("add", request.add);
    if (request.k !== 10) put("k", [request.k]);
    if (request.includeSeen) put("include_seen", ["1"]);
    if (request.where) put("where", [request.where]);
    if (request.diversity) put("diversity", [request.diversity]);
    if (request.thresholds) put("thresholds", ["f1"]);
  }
  if (request.row) {
    for (const [name, value] of Object.entries(request.row)) put(`row.${name}`, [value]);
    put("fpr", [request.fpr]);
    if (request.confidence) put("confidence", [request.confidence]);
  }
  const search = parameters.toString();
  return search ? `?${search}` : "";
}

/** Put a request into the browser's history: as a new entry, or in place of the last one. */
export function remember(request, { replace = false } = {}) {
  const search = format(request);
  const isLong = search.length > MAX_LENGTH;
  const address = location.pathname + (isLong ? format(makeRequest({ model: request.model })) : search);
  if (replace || search === format(current())) history.replaceState(request, "", address);
  else history.pushState(request, "", address);
}

/** The request at the current place of the browser's history. */
export const current = () => (history.state?.k ? makeRequest(history.state) : parse(location.search));
