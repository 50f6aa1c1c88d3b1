"""Arguments and options: those that commands share, and those that a task's settings declare."""

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import Field, fields
from functools import wraps
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import typer
from typer.core import TyperCommand

from rankfold.config import declarations
from rankfold.errors import UserError
from rankfold.interrupts import import_torch

F = TypeVar("F", bound=Callable[..., None])
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
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Check everything and show the plan; write nothing.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print less on stderr.")]


class Command(TyperCommand):
    """A command whose arguments can list a registry: ``{rankfold.index:INDEXES}``.

    The registry is imported when the help is shown.
    """

    def invoke(self, ctx: Any) -> Any:
        import_torch()
        return super().invoke(ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse an empty ``--out``, which would be the current folder: a variable was not set."""
        if ("--out", "") in pairwise(args) or "--out=" in args:
            raise UserError("--out is empty", hint="name a folder or a file")
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        for param in self.params:
            if (text := getattr(param, "help", None)) is not None:
                param.help = re.sub(r"\{([\w.]+):(\w+)\}", _entries, text)  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


def _entries(match: re.Match[str]) -> str:
    """The names in a registry, with their summaries if they have any."""
    registry: Mapping[str, Any] = getattr(import_module(match[1]), match[2])
    if any(hasattr(entry, "summary") for entry in registry.values()):
        return "; ".join(f"{name}: {entry.summary}" for name, entry in registry.items())
    return ", ".join(registry)


def option(config: type[Any], name: str, *flags: str, **arguments: Any) -> Any:
    """A typer option with the help that a setting declares."""
    text = declarations(config)[name].help
    return typer.Option(*flags, help=f"{text[0].upper()}{text[1:]}.", **arguments)


def takes(metavar: str, help: str) -> Any:
    """An option that takes a value; ``metavar`` is its name in the help."""
    return typer.Option(metavar=metavar, help=help)


def with_settings(
    *configs: type[Any],
    omit: Collection[str] = (),
    metavar: Mapping[str, str] = MappingProxyType({}),
    kinds: Mapping[str, Any] = MappingProxyType({}),
    unset: bool = False,
) -> Callable[[F], F]:
    """Add an option for each setting that the command does not name; it gets them as ``**options``.

    The type, default and help are those of the setting. Settings other than texts, numbers and
    switches are left out.

    Args:
        configs: ``Settings`` classes.
        omit: settings without an option.
        metavar: what the help shows for a value, by setting.
        kinds: the types of settings for which the command line takes files, in place of tables.
        unset: the default is None, so that ``given`` knows which options were given.
    """

    def decorate(command: F) -> F:
        own = inspect.signature(command, eval_str=True)
        named = [one for one in own.parameters.values() if one.kind is not one.VAR_KEYWORD]
        last = [one for one in named if one.name in ("dry_run", "json", "quiet")]
        more = {
            one.name: _parameter(config, one, kind, metavar.get(one.name), unset=unset)
            for config in configs[::-1]  # of two settings with one name, the first counts
            for one in sorted(fields(config), key=lambda one: one.name not in _own(config))
            if one.name not in (*own.parameters, *omit)
            and (kind := kinds.get(one.name) or _option_type(get_type_hints(config)[one.name]))
        }
        parameters = [*(one for one in named if one not in last), *more.values(), *last]
        command.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        return command

    return decorate


def _own(config: type[Any]) -> Collection[str]:
    """The settings that a config declares itself; those that it inherits come after them."""
    return inspect.get_annotations(config)


def _parameter(
    config: type[Any], one: Field[Any], kind: Any, metavar: str | None, *, unset: bool
) -> inspect.Parameter:
    flags = [f"--{one.name.replace('_', '-')}"] if one.default is False else []  # without --no-
    if len(one.name) == 1:
        flags = [f"-{one.name}"]
    info, default = option(config, one.name, *flags, metavar=metavar), one.default
    if unset:
        shown = "" if default is None or default is False else f"; default: {default}"
        info.help, kind, default = f"{info.help[:-1]}{shown}.", kind | None, None
    return inspect.Parameter(
        one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )


def _option_type(kind: Any) -> Any:
    """The type of an option: text wherever the setting accepts text. None: it has no option."""
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    plain = next((one for one in (str, bool, int, float) if one in kinds), None)
    return plain | None if plain is not None and NoneType in kinds else plain


def with_imports(command: F) -> F:
    """Add ``--import``, which registers own methods and encoders before the command runs."""

    @wraps(command)
    def run(*arguments: Any, modules: list[str] | None = None, **options: Any) -> None:
        if modules:
            from rankfold.models.imports import import_modules

            import_modules(modules)
        command(*arguments, **options)

    own = inspect.signature(command, eval_str=True)
    info = typer.Option(
        "--import", metavar="MODULE", help="Import a module that registers methods or encoders."
    )
    kind = Annotated[list[str] | None, info]
    more = inspect.Parameter(
        "modules", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind
    )
    run.__signature__ = own.replace(parameters=[*own.parameters.values(), more])  # type: ignore[attr-defined]
    return run  # type: ignore[return-value]


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a command ``with_settings(..., unset=True)`` that were given."""
    return {name: value for name, value in options.items() if value is not None}
