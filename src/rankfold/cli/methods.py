"""``rankfold methods``: the methods, the data they take, and their settings."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankfold.cli.console import console, print_json, print_table
from rankfold.cli.options import Json

if TYPE_CHECKING:
    from rankfold.types import Method


def command(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A method; default: all of them.")
    ] = None,
    *,
    json: Json = False,
) -> None:
    """List the methods, or the settings of one."""
    from rankfold.methods import METHODS, find_method

    if json:
        shown = METHODS if name is None else {name: find_method(name)}
        print_json({"methods": [_as_data(key, method) for key, method in shown.items()]})
    elif name is None:
        out = console()
        lines = [[key, method.data_kind, method.summary] for key, method in METHODS.items()]
        print_table("methods", ["name", "data", "what it does"], lines, out, left=3)
        out.print("`rankfold methods NAME` lists the settings of one")
    else:
        _print_settings(name, find_method(name))


def _as_data(name: str, method: "Method") -> dict[str, Any]:
    """A method with its defaults (``config``) and all about its settings (``settings``)."""
    from rankfold.config import describe_settings

    settings = describe_settings(method.config)
    return {
        "name": name,
        "summary": method.summary,
        "data_kind": method.data_kind,
        "paper": method.paper,
        "config": {key: setting["default"] for key, setting in settings.items()},
        "settings": settings,
    }


def _print_settings(name: str, method: "Method") -> None:
    from rankfold.config import describe_values, list_settings

    out = console()
    out.print(f"{name}: {method.summary}; takes {method.data_kind}")
    lines = [
        [
            key,
            "none" if default is None else str(default),
            describe_values(method.config, key),
            declared.help,
        ]
        for key, default, declared in list_settings(method.config)
    ]
    print_table("settings", ["name", "default", "values", "meaning"], lines, out, left=4)
