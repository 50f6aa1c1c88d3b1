"""Output for people: text, tables and progress on stderr, so that stdout carries only data."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rankfold import storage
from rankfold.errors import printable

if TYPE_CHECKING:
    from rich.console import Console

_LINE_INTERVAL = 10  # seconds between two lines about the same work

ProgressCallback = Callable[[str, float], None]


def console(*, quiet: bool = False) -> "Console":
    """A console on stderr. Names may hold brackets and control characters: both are text."""
    from rich.console import Console

    class Escaping(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            shown = (printable(one) if isinstance(one, str) else one for one in objects)
            super().print(*shown, **options)

    plain = not sys.stderr.isatty()
    return Escaping(stderr=True, quiet=quiet, highlight=False, markup=False, soft_wrap=plain)


def print_json(document: Mapping[str, Any]) -> None:
    sys.stdout.write(storage.to_json(document))


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[ProgressCallback]:
    """A function that reports progress: ``(what, share done)``.

    On a terminal it moves a bar with the time left. Elsewhere it prints a line when the work
    changes and then at most one every ten seconds.
    """
    if quiet:
        yield lambda _what, _share: None
    elif sys.stderr.isatty():
        with _bar() as report:
            yield report
    else:
        yield _lines()


@contextmanager
def _bar() -> Iterator[ProgressCallback]:
    from rich import progress

    bar = progress.Progress(
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.TaskProgressColumn(show_speed=True),
        progress.TimeElapsedColumn(),
        progress.TextColumn("left"),
        progress.TimeRemainingColumn(),
        console=console(),
        transient=True,
    )
    with bar:
        task = bar.add_task("starting", total=None)
        current = ""

        def report(what: str, share: float) -> None:
            nonlocal current
            if _stage(what) != _stage(current):
                bar.reset(task, total=None)
            current = what
            total = 1.0 if share > 0 else None
            bar.update(task, description=printable(what), completed=share, total=total)

        yield report


def _lines() -> ProgressCallback:
    current, last = "", 0.0

    def report(what: str, share: float) -> None:
        nonlocal current, last
        now = time.monotonic()
        if _stage(what) != _stage(current) or now - last > _LINE_INTERVAL:
            done = f" {share:.0%}" if share > 0 else ""
            sys.stderr.write(printable(f"{what}{done}\n"))
            last = now
        current = what

    return report


def _stage(what: str) -> str:
    return what.partition(":")[0]


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], out: "Console", left: int = 1
) -> None:
    """A small table: the first ``left`` columns hold text, the others numbers."""
    from rich.table import Table

    table = Table(title=printable(title), title_justify="left")
    for column, name in enumerate(columns):
        table.add_column(
            printable(name), justify="left" if column < left else "right", overflow="fold"
        )
    for row in rows:
        table.add_row(*map(printable, row))
    out.print(table)
