"""``rankfold methods``: what can be fitted, on which data, with which settings."""

from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from rankfold.cli.console import console, print_json, print_table
from rankfold.cli.options import Json


def command(
    name: Annotated[str | None, typer.Argument(help="One of them, with its settings.")] = None,
    *,
    json: Json = False,
) -> None:
    """List the methods, or the settings of one."""
    from dataclasses import fields

    from rankfold.methods import METHODS
    from rankfold.tasks.fit import find_method

    shown = METHODS if name is None else {name: find_method(name)}
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "summary": method.summary,
            "data_kind": method.data_kind,
            "paper": method.paper,
            "config": {field.name: field.default for field in fields(method.config)},
        }
        for name, method in shown.items()
    ]
    if json:
        print_json({"methods": rows})
        return
    out = console()
    if name is None:
        lines = [[row["name"], row["data_kind"], row["summary"]] for row in rows]
        print_table("methods", ["name", "data", "what it does"], lines, out, left=3)
        out.print("`rankfold methods NAME` lists the settings of one")
        return
    out.print(f"{name}: {rows[0]['summary']}; takes {rows[0]['data_kind']}")
    kinds = get_type_hints(shown[name].config)
    lines = [[key, str(value), _values(kinds[key])] for key, value in rows[0]["config"].items()]
    print_table("settings", ["name", "default", "values"], lines, out, left=3)


def _values(kind: Any) -> str:
    """What a setting takes, for people."""
    if get_origin(kind) is Literal:
        return ", ".join(map(str, get_args(kind)))
    if get_args(kind):
        return " or ".join(_values(one) for one in get_args(kind))
    names = {int: "a whole number", float: "a number", bool: "true or false", type(None): "none"}
    return names.get(kind, "text")
