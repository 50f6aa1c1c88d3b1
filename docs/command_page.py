"""The page "Commands": generated from the command line itself."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import typer

from rankfold.cli import _PANELS, app
from rankfold.cli.options import _entries

HEAD = """# Commands

    rankfold --help
    rankfold fit --help

Options may stand before or after arguments. Messages go to stderr; `--json` prints one JSON
document to stdout and nothing else; `--quiet` prints less. Exit codes: 0 success, 2 wrong input
(with a message and a hint), 130 interrupted, 1 a bug. `--set key=value` takes the
[settings](settings.md) of a method.
"""


def page() -> str:
    """A section per command, in the order of the help."""
    group: Any = typer.main.get_command(app)
    parts = [HEAD]
    for panel, modules in _PANELS.items():
        names = [module.__name__.rpartition(".")[2] for module in modules]
        links = ", ".join(f"[`{name}`](#{name})" for name in names)
        parts.append(f"**{panel}**: {links}\n")
    for modules in _PANELS.values():
        for module in modules:
            name = module.__name__.rpartition(".")[2]
            parts.append(_section(name, group.commands[name]))
    return "\n".join(parts)


def _section(name: str, command: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option"]
    usage = " ".join(_argument(one) for one in arguments)
    lines = [
        f"## {name}",
        "",
        _text(command.help),
        "",
        f"    rankfold {name} {usage} [options]",
        "",
    ]
    if arguments:
        lines += ["| argument | |", "|---|---|"]
        lines += [
            f"| `{one.metavar or one.name.upper()}` | {_text(one.help)} |" for one in arguments
        ]
        lines.append("")
    lines += ["| option | default | |", "|---|---|---|"]
    lines += [
        f"| {_flags(one, command)} | {_default(one)} | {_text(one.help)} |"
        for one in _shown(options)
    ]
    return "\n".join([*lines, ""])


def _shown(options: list[Any]) -> Iterator[Any]:
    return (one for one in options if not one.hidden and one.name != "help")


def _argument(one: Any) -> str:
    name = one.metavar or one.name.upper()
    name = f"{name}..." if one.nargs == -1 and not name.endswith("...") else name
    return name if one.required else f"[{name}]"


def _flags(one: Any, command: Any) -> str:
    value = "" if one.is_flag or one.is_bool_flag else f" {one.metavar or _kind(one, command)}"
    return ", ".join(f"`{flag}{value}`" for flag in (*one.opts, *one.secondary_opts))


def _kind(one: Any, command: Any) -> str:
    annotation = inspect.signature(command.callback).parameters[one.name].annotation
    kind = get_args(annotation)[0]  # perhaps with None
    words = {int: "N", float: "X", Path: "PATH"}
    return next((words[each] for each in (kind, *get_args(kind)) if each in words), "TEXT")


def _default(one: Any) -> str:
    if one.is_flag or one.is_bool_flag or one.default in (None, False, ()) or callable(one.default):
        return ""
    return f"`{one.default}`"


def _text(text: str | None) -> str:
    words = re.sub(r"\{([\w.]+):(\w+)\}", _entries, text or "")
    return " ".join(words.split()).replace("|", "\\|").replace("<", "&lt;")
