"""What ``--dry-run`` prints: the plan of a command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankfold.cli.console import console, print_json
from rankfold.errors import format_bytes

if TYPE_CHECKING:
    from rankfold.tasks.dry_run import Outline


def show_outline(outline: Outline, *, json: bool, quiet: bool) -> None:
    """Print a plan: as a JSON document, or a line for each thing that is known."""
    if json:
        return print_json(outline.to_json())
    say = console(quiet=quiet)
    say.print(f"{outline.command} would run; nothing was written")
    for read in outline.reads:
        say.print(f"  reads {read.path}, {format_bytes(read.bytes)}")
    for one in outline.writes:
        size = "size not known" if one.bytes is None else f"at least {format_bytes(one.bytes)}"
        what = "replaces" if one.replaces else "writes"
        say.print(f"  {what} {one.path}, {size}; {format_bytes(one.free)} free")
    for name, value in outline.work.items():
        if value not in (None, {}):
            say.print(f"  {name}: {_words(value)}")
    memory = "not known" if outline.memory is None else f"at least {format_bytes(outline.memory)}"
    say.print(f"  memory: {memory}")
    source = "" if outline.seconds_from is None else f": {outline.seconds_from}"
    time = "not known" if outline.seconds is None else f"about {outline.seconds:.3g} s{source}"
    say.print(f"  time: {time}")
    for note in outline.notes:
        say.print(f"  {note}", style="yellow")


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_words(one)}" for name, one in value.items())
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
