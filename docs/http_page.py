"""The page "HTTP": generated from the OpenAPI document of the server."""

from types import SimpleNamespace
from typing import Any

HEAD = """# HTTP

    curl -s -H 'Content-Type: application/json' -d '{"queries": ["alice"], "k": 5}' \\
      http://127.0.0.1:8080/search

`rankfold serve model` answers at these paths; [Serve](../guide/serve.md) has examples, limits and
security. A running server describes itself at `/docs`, and at `/openapi.json` for programs. The
paths of a model exist twice: `/search` asks the first model, `/models/NAME/search` the one with
that name. An error is `{"error": "...", "hint": "..."}`.
"""


def page() -> str:
    """A section per path and a section per body."""
    document = openapi()
    parts = [HEAD]
    for path, methods in document["paths"].items():
        if path.startswith("/models/"):
            continue
        for verb, entry in methods.items():
            parts.append(_endpoint(verb, path, entry))
    schemas = document.get("components", {}).get("schemas", {})
    parts.append("## Fields\n")
    parts += [_fields(name, schema) for name, schema in schemas.items() if "properties" in schema]
    return "\n".join(parts)


def openapi() -> dict[str, Any]:
    """The document of a server without models."""
    from rankfold.serve.app import build_app
    from rankfold.serve.limits import Limits

    nothing: Any = SimpleNamespace(slots={}, log=None, metrics=None)
    app: Any = build_app(nothing, Limits())
    document: dict[str, Any] = app.app.openapi()
    return document


def _endpoint(verb: str, path: str, entry: dict[str, Any]) -> str:
    lines = [f"## {verb.upper()} {path}", "", entry.get("summary", "") + ".", ""]
    body = entry.get("requestBody", {}).get("content", {}).get("application/json", {})
    if body:
        lines += [f"Takes {_type(body['schema'])}.", ""]
    for one in entry.get("parameters", ()):
        lines.append(f"- `{one['name']}`: {one.get('description', '')}")
    good = entry.get("responses", {}).get("200", {}).get("content", {}).get("application/json", {})
    if good.get("schema"):
        lines += ["", f"Returns {_type(good['schema'])}.", ""]
    return "\n".join(lines)


def _fields(name: str, schema: dict[str, Any]) -> str:
    lines = [f"### {name}", "", schema.get("description", ""), "", "| field | type | default | |"]
    lines.append("|---|---|---|---|")
    for key, value in schema["properties"].items():
        default = "required" if key in schema.get("required", ()) else value.get("default", "")
        shown = "none" if default is None else f"{default}"
        text = " ".join(str(value.get("description", "")).split()).replace("|", "\\|")
        lines.append(f"| `{key}` | {_type(value)} | {shown} | {text} |")
    return "\n".join([*lines, ""])


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for joint in ("anyOf", "oneOf"):
        if joint in schema:
            return " or ".join(dict.fromkeys(_type(one) for one in schema[joint]))
    kind = schema.get("type", "any value")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return "none" if kind == "null" else str(kind)
