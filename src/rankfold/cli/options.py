"""Options of a command from the settings of its task: help, bounds and defaults stated once."""

from __future__ import annotations

from dataclasses import MISSING, fields
from types import SimpleNamespace
from typing import Any

import typer

from rankfold.config import declarations


def option(config: type[Any], name: str, **arguments: Any) -> Any:
    """A typer option with the help and choices that a setting declares."""
    declared = declarations(config)[name]
    text = declared.help[0].upper() + declared.help[1:]
    choices = "" if declared.choices is None else f": {', '.join(declared.choices)}"
    return typer.Option(help=f"{text}{choices}.", **arguments)


def flag(config: type[Any], name: str) -> Any:
    """A switch that can only be turned on: ``--resume`` without ``--no-resume``."""
    text = declarations(config)[name].help
    return typer.Option(f"--{name.replace('_', '-')}", help=f"{text[0].upper()}{text[1:]}.")


def defaults(config: type[Any]) -> Any:
    """The default of every setting that has one, as attributes."""
    return SimpleNamespace(
        **{one.name: one.default for one in fields(config) if one.default is not MISSING}
    )
