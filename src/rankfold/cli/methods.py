"""``rankfold methods``: what can be fitted, on which data, with which settings."""

from typing import Any

from rankfold.cli.console import AsJson, console, print_json, print_table


def command(*, json: AsJson = False) -> None:
    """List the methods and their settings."""
    from dataclasses import fields

    from rankfold.methods import METHODS

    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "summary": method.summary,
            "data_kind": method.data_kind,
            "paper": method.paper,
            "config": {field.name: field.default for field in fields(method.config)},
        }
        for name, method in METHODS.items()
    ]
    if json:
        print_json({"methods": rows})
        return
    lines = [
        [
            row["name"],
            row["data_kind"],
            ", ".join(f"{key}={value}" for key, value in row["config"].items()),
            row["summary"],
        ]
        for row in rows
    ]
    print_table("methods", ["name", "data", "settings", "what it does"], lines, console(), left=4)
