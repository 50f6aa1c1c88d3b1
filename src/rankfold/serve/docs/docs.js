// The OpenAPI document as a page. Text is only ever set as text: nothing in it is read as HTML.

const make = (tag, ...children) => {
  const node = document.createElement(tag);
  node.append(...children.filter((child) => child !== null));
  return node;
};

const resolve = (api, schema) => {
  const name = schema?.$ref?.split("/").pop();
  return name ? api.components.schemas[name] : schema;
};

/** The type of a value, in a few words. */
function kind(api, schema, depth = 0) {
  const found = resolve(api, schema);
  if (!found || depth > 4) return "…";
  const choices = found.anyOf ?? found.enum?.map((value) => ({ const: value }));
  if (choices) return choices.map((each) => kind(api, each, depth + 1)).join(" or ");
  if ("const" in found) return JSON.stringify(found.const);
  if (found.type === "array") return `list of ${kind(api, found.items ?? {}, depth + 1)}${bounds(found, "Items")}`;
  if (found.type === "string") return `text${bounds(found, "Length")}`;
  if (found.type === "object" && found.properties) return `{${Object.keys(found.properties).join(", ")}}`;
  return `${found.type ?? "anything"}${range(found)}`;
}

const bounds = (schema, what) => (schema[`max${what}`] ? ` (at most ${schema[`max${what}`].toLocaleString("en")})` : "");

function range(schema) {
  const low = schema.minimum ?? schema.exclusiveMinimum;
  const high = schema.maximum ?? schema.exclusiveMaximum;
  const small = (value) => value !== undefined && Math.abs(value) < 1e9;
  return small(low) && small(high) ? ` (${low} to ${high})` : "";
}

function table(rows) {
  return make("table", ...rows.map(([name, ...cells]) => make("tr", make("th", make("code", name)), ...cells.map((cell) => make("td", cell)))));
}

function fields(api, schema) {
  const required = schema.required ?? [];
  return Object.entries(schema.properties ?? {}).map(([name, each]) => {
    const usual = each.default === undefined ? (required.includes(name) ? "required" : "") : `${JSON.stringify(each.default)} if left out`;
    return [name, kind(api, each), usual, each.description ?? ""];
  });
}

function asked(api, operation) {
  const parts = [];
  const named = (operation.parameters ?? []).map((each) => [each.name, kind(api, each.schema), each.required ? "required" : "", each.description ?? ""]);
  if (named.length) parts.push(make("h3", "In the address"), table(named));
  const body = resolve(api, operation.requestBody?.content?.["application/json"]?.schema);
  if (body) {
    parts.push(make("h3", "In the body (JSON)"), table(fields(api, body)));
    if (body.oneOf) parts.push(make("p", `Exactly one of ${body.oneOf.map((each) => each.required.join(" and ")).join(", ")}.`));
  }
  return parts;
}

function answered(api, operation) {
  const rows = Object.entries(operation.responses).map(([status, answer]) => {
    const mark = make("span", status);
    mark.className = `status ${status < "300" ? "good" : "bad"}`;
    const content = Object.entries(answer.content ?? {})[0];
    const what = content ? `${content[0]}: ${kind(api, content[1].schema ?? {})}` : "";
    return make("tr", make("th", mark), make("td", answer.description), make("td", what));
  });
  return make("details", make("summary", "Answers"), make("table", ...rows));
}

const EXAMPLES = {
  search_first: '{"queries": ["KEY"], "k": 10}',
  grade_first: '{"rows": [{"COLUMN": 1.5}]}',
};

function example(path, operation) {
  const body = EXAMPLES[operation.operationId];
  if (!body) return null;
  return make("pre", `curl -H 'content-type: application/json' -d '${body}' ${location.origin}${path}`);
}

function endpoint(api, path, method, operation) {
  const parts = [make("h2", `${method.toUpperCase()} ${path}`), make("p", operation.summary ?? "")];
  return make("section", ...parts, example(path, operation), ...asked(api, operation), answered(api, operation));
}

async function show() {
  const about = document.getElementById("about");
  try {
    const api = await (await fetch("/openapi.json")).json();
    about.replaceChildren(`${api.info.title} ${api.info.version}. ${api.info.description} All of this is in `);
    const link = make("a", "/openapi.json");
    link.href = "/openapi.json";
    about.append(link, ". Where the server asks for a token, send it as Authorization: Bearer TOKEN.");
    const found = Object.entries(api.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, operation]) => endpoint(api, path, method, operation)));
    document.getElementById("endpoints").replaceChildren(...found);
  } catch (error) {
    about.replaceChildren(`The document cannot be read: ${error.message}`);
  }
}

show();
