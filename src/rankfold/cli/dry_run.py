"""What ``--dry-run`` prints: the plan of a command."""

from collections.abc import Mapping
from typing import Any

from rankfold.cli.console import console, print_json
from rankfold.errors import format_bytes


def show_outline(plan: Mapping[str, Any], *, json: bool, quiet: bool) -> None:
    """Print a plan: as a JSON document, or a line for each thing that is known."""
    if json:
        return print_json(plan)
    say = console(quiet=quiet)
    say.print(f"{plan['command']} would run; nothing was written")
    for read in plan["reads"]:
        say.print(f"  reads {read['path']}, {format_bytes(read['bytes'])}")
    for one in plan["writes"]:
        what = "replaces" if one["replaces"] else "writes"
        size, free = _at_least(one["at_least"], "size not known"), format_bytes(one["free"])
        say.print(f"  {what} {one['path']}, {size}; {free} free")
    for name, value in plan["work"].items():
        if value not in (None, {}):
            say.print(f"  {name}: {_words(value)}")
    say.print(f"  memory: {_at_least(plan['memory_at_least'], 'not known')}")
    seconds, source = plan["seconds"], plan["seconds_from"]
    time = "not known" if seconds is None else f"about {seconds:.3g} s"
    say.print(f"  time: {time}{f': {source}' if source else ''}")
    for note in plan["notes"]:
        say.print(f"  {note}", style="yellow")


def _at_least(size: int | None, unknown: str) -> str:
    return unknown if size is None else f"at least {format_bytes(size)}"


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_words(one)}" for name, one in value.items())
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
