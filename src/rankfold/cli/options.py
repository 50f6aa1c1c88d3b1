"""Arguments and options: those that commands share, and those that a task's settings declare."""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

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
        help="exact, or an approximate index: auto, inverted, hnsw or compressed. Default: the "
        "index built by `rankfold index`, otherwise exact.",
    ),
]
IncludeSeen = Annotated[
    bool, typer.Option("--include-seen", help="Also return candidates that the query chose before.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print less on stderr.")]


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


def _capitalized(text: str) -> str:
    return text[0].upper() + text[1:]
