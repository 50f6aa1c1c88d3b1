"""Arguments and options: those that commands share, and those that a task's settings declare."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from rankfold.config import declarations

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A folder from `rankfold fit`.")]
Data = Annotated[Path, typer.Argument(metavar="DATA", help="A folder from `rankfold prepare`.")]
MethodName = Annotated[
    str, typer.Argument(metavar="METHOD", help="A name from `rankfold methods`.")
]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A data, model or checkpoint folder.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the random numbers.")]
Index = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="exact, or an approximate kind: see `rankfold index --help`. Default: the index "
        "built by `rankfold index`, otherwise exact.",
    ),
]
IncludeSeen = Annotated[
    bool, typer.Option("--include-seen", help="Also return candidates that the query chose before.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print less on stderr.")]


class Command(TyperCommand):
    """A command whose arguments can list a registry: ``{rankfold.index:INDEXES}``.

    The registry is imported when the help is shown.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        for param in self.params:
            if (text := getattr(param, "help", None)) is not None:
                param.help = re.sub(r"\{([\w.]+):(\w+)\}", _entries, text)  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


def _entries(found: re.Match[str]) -> str:
    """The names in a registry, with their summaries if they have any."""
    registry: Mapping[str, Any] = getattr(import_module(found[1]), found[2])
    if any(hasattr(entry, "summary") for entry in registry.values()):
        return "; ".join(f"{name}: {entry.summary}" for name, entry in registry.items())
    return ", ".join(registry)


def option(config: type[Any], name: str, **arguments: Any) -> Any:
    """A typer option with the help and choices that a setting declares."""
    declared = declarations(config)[name]
    choices = "" if declared.choices is None else f": {', '.join(declared.choices)}"
    return typer.Option(help=f"{_capitalized(declared.help)}{choices}.", **arguments)


def flag(config: type[Any], name: str) -> Any:
    """A switch that can only be turned on: ``--resume`` without ``--no-resume``."""
    help = _capitalized(declarations(config)[name].help)
    return typer.Option(f"--{name.replace('_', '-')}", help=f"{help}.")


def defaults(config: type[Any]) -> Any:
    """The default of every setting that has one, as attributes."""
    return SimpleNamespace(
        **{one.name: one.default for one in fields(config) if one.default is not MISSING}
    )


def options_in(config: type[Any], values: dict[str, Any]) -> dict[str, Any]:
    """Those of ``values``, the arguments of a command, that are settings."""
    return {one.name: values[one.name] for one in fields(config) if one.name in values}


def is_given(context: typer.Context, name: str) -> bool:
    """Whether an option was written on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _capitalized(text: str) -> str:
    return text[0].upper() + text[1:]
