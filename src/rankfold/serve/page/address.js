// The question in the address bar, so that it can be shared and Back works.

export const KINDS = ["query", "history", "text", "candidate"];
const LONGEST = 6000; // characters; a longer question is kept in the browser's history alone

/** A question: what is asked, of which model, and how the history was changed. */
export function question(given = {}) {
  return {
    model: "",
    kind: null,
    key: "",
    keys: [],
    off: [],
    add: [],
    k: 10,
    seen: false,
    row: null,
    fpr: null,
    ...given,
  };
}

export function read(search) {
  const parameters = new URLSearchParams(search);
  const kind = KINDS.find((name) => parameters.has(name)) ?? null;
  const row = Object.fromEntries(
    [...parameters]
      .filter(([name]) => name.startsWith("row."))
      .map(([name, value]) => [name.slice(4), value]),
  );
  const k = Number(parameters.get("k"));
  return question({
    model: parameters.get("model") ?? "",
    kind,
    key: kind && kind !== "history" ? parameters.get(kind) : "",
    keys: kind === "history" ? parameters.getAll(kind).filter((key) => key !== "") : [],
    off: parameters.getAll("off"),
    add: parameters.getAll("add"),
    k: Number.isInteger(k) && k > 0 ? k : 10,
    seen: parameters.has("seen"),
    row: parameters.has("fpr") ? row : null,
    fpr: parameters.get("fpr"),
  });
}

export function write(asked) {
  const parameters = new URLSearchParams();
  const put = (name, values) => values.forEach((value) => parameters.append(name, value));
  if (asked.model) put("model", [asked.model]);
  if (asked.kind === "history") put("history", asked.keys.length ? asked.keys : [""]);
  else if (asked.kind) put(asked.kind, [asked.key]);
  if (asked.kind) {
    put("off", asked.off);
    put("add", asked.add);
    if (asked.k !== 10) put("k", [asked.k]);
    if (asked.seen) put("seen", ["1"]);
  }
  if (asked.row) {
    for (const [name, value] of Object.entries(asked.row)) put(`row.${name}`, [value]);
    put("fpr", [asked.fpr]);
  }
  const words = parameters.toString();
  return words ? `?${words}` : "";
}

/** Note a question in the browser's history: as a new entry, or in place of the last one. */
export function note(asked, { replace = false } = {}) {
  const words = write(asked);
  const address =
    location.pathname + (words.length > LONGEST ? write(question({ model: asked.model })) : words);
  if (replace || words === write(current())) history.replaceState(asked, "", address);
  else history.pushState(asked, "", address);
}

/** The question that the browser's history is at. */
export const current = () => (history.state?.k ? question(history.state) : read(location.search));
