// The OpenAPI document as a page. Everything in it is shown as text, never as HTML.

const PREFIX = "/models/{name}"; // each endpoint of a model also exists by the model's name

const make = (tag, className, ...children) => {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children.filter((child) => child !== null && child !== ""));
  return node;
};

const resolve = (api, schema) => {
  const name = schema?.$ref?.split("/").pop();
  return name ? api.components.schemas[name] : schema;
};

/** The type of a value in words: "list of up to 256 keys". */
function typeName(api, schema, isPlural = false, depth = 0) {
  const type = resolve(api, schema);
  if (!type || depth > 4) return "…";
  const plural = (noun) => (isPlural ? `${noun}s` : noun);
  if (type.title === "key") return plural("key");
  const choices = type.anyOf ?? type.enum?.map((value) => ({ const: value }));
  if (choices) return choices.map((each) => typeName(api, each, isPlural, depth + 1)).join(" or ");
  if ("const" in type) return JSON.stringify(type.const);
  if (type.type === "array") {
    const items = typeName(api, type.items ?? {}, true, depth + 1);
    return `${plural("list")} of ${upTo(type.maxItems)}${items}`;
  }
  if (type.type === "string") {
    return plural("string") + (type.maxLength ? ` of ${upTo(type.maxLength)}characters` : "");
  }
  if (type.type === "object" && type.properties) {
    const fields = Object.entries(type.properties).map(([name, field]) => {
      const isNested = resolve(api, field.items)?.properties !== undefined;
      return isNested ? `${name}: ${typeName(api, field, false, depth + 1)}` : name;
    });
    return `{${fields.join(", ")}}`;
  }
  return `${type.type ? plural(type.type) : "any value"}${range(type)}`;
}

const upTo = (limit) => (limit ? `up to ${limit.toLocaleString("en")} ` : "");

function range(schema) {
  const low = schema.minimum ?? schema.exclusiveMinimum;
  const high = schema.maximum ?? schema.exclusiveMaximum;
  const isSmall = (value) => value !== undefined && Math.abs(value) < 1e9;
  return isSmall(low) && isSmall(high) ? ` from ${low} to ${high}` : "";
}

/** A list of fields: name, type, default and description. */
function fieldList(api, fields) {
  const rows = fields.map(({ name, schema, required, description }) => {
    const isDefault = schema.default !== undefined && schema.default !== "";
    const note = required ? "required" : isDefault ? `default: ${JSON.stringify(schema.default)}` : "";
    const type = [typeName(api, schema), note].filter(Boolean).join(", ");
    return [
      make("dt", "", make("code", "", name), " ", make("span", "type", type)),
      make("dd", "", description ?? ""),
    ];
  });
  return make("dl", "", ...rows.flat());
}

function inputs(api, operation) {
  const parts = [];
  const parameters = (operation.parameters ?? []).filter((each) => each.in === "query");
  if (parameters.length) parts.push(make("h3", "", "Parameters"), fieldList(api, parameters));
  const body = resolve(api, operation.requestBody?.content?.["application/json"]?.schema);
  if (body) {
    const required = body.required ?? [];
    const fields = Object.entries(body.properties ?? {}).map(([name, schema]) => ({
      name,
      schema,
      required: required.includes(name),
      description: schema.description,
    }));
    parts.push(make("h3", "", "Body (JSON)"));
    if (body.oneOf) {
      const names = body.oneOf.map((each) => each.required.join(" and ")).join(", ");
      parts.push(make("p", "", `Send exactly one of ${names}.`));
    }
    parts.push(fieldList(api, fields));
  }
  return parts;
}

function responses(api, operation) {
  const rows = Object.entries(operation.responses).map(([status, response]) => {
    const content = Object.values(response.content ?? {})[0];
    const fields = content ? typeName(api, content.schema ?? {}) : "";
    return [
      make("dt", "", make("code", status < "300" ? "good" : "bad", status), " ", make("span", "type", fields)),
      make("dd", "", response.description),
    ];
  });
  return make("details", "", make("summary", "", "Responses"), make("dl", "", ...rows.flat()));
}

const EXAMPLES = {
  "/search": '{"queries": ["KEY"], "k": 10}',
  "/grade": '{"rows": [{"COLUMN": 1.5}]}',
};

function example(path) {
  const body = EXAMPLES[path];
  if (!body) return null;
  return make("pre", "", `curl -H 'Content-Type: application/json' \\\n  -d '${body}' \\\n  ${location.origin}${path}`);
}

function endpoint(api, path, method, operation) {
  const named = PREFIX + path in api.paths ? make("p", "also", "By model: ", make("code", "", PREFIX + path)) : null;
  return make(
    "section",
    "",
    make("h2", "", `${method.toUpperCase()} ${path}`),
    make("p", "", `${operation.summary}.`),
    named,
    example(path),
    ...inputs(api, operation),
    responses(api, operation),
  );
}

async function show() {
  const about = document.getElementById("about");
  try {
    const api = await (await fetch("/openapi.json")).json();
    const link = make("a", "", "/openapi.json");
    link.href = "/openapi.json";
    about.replaceChildren(
      `rankfold ${api.info.version}. Keys are strings or 64-bit integers. Paths without a model name use the first model. An error is {"error", "hint"}. If the server requires a token, send the header Authorization: Bearer TOKEN. For programs: `,
      link,
      ".",
    );
    const sections = Object.entries(api.paths)
      .filter(([path]) => !path.startsWith(PREFIX))
      .flatMap(([path, methods]) =>
        Object.entries(methods).map(([method, operation]) => endpoint(api, path, method, operation)),
      );
    document.getElementById("endpoints").replaceChildren(...sections);
  } catch (error) {
    about.replaceChildren(`Cannot read /openapi.json: ${error.message}`);
  }
}

show();
