"""What people see: rich text and progress on stderr, so that stdout carries data alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankfold import storage
from rankfold.errors import printable

if TYPE_CHECKING:
    from rich.console import Console

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say less on stderr.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")]

Index = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="What searches vectors: exact, or auto, inverted, hnsw or compressed, which are "
        "faster where candidates are many and miss a few of the best; if not given, what "
        "`rankfold index` has built, or else exact.",
    ),
]

Tell = Callable[[str, float], None]


def console(*, quiet: bool = False) -> Console:
    from rich.console import Console

    # keys and paths may hold brackets: nothing is read as markup
    plain = not sys.stderr.isatty()
    return Console(stderr=True, quiet=quiet, highlight=False, markup=False, soft_wrap=plain)


def print_json(document: Mapping[str, Any]) -> None:
    sys.stdout.write(storage.to_json(document))


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[Tell]:
    """A function to tell of progress: ``(what, share done)``.

    On a terminal it moves a bar with the time left; elsewhere it prints a plain line when the work
    changes and then at most every ten seconds.
    """
    if quiet:
        yield lambda _what, _share: None
    elif sys.stderr.isatty():
        with _bar() as tell:
            yield tell
    else:
        yield _lines()


@contextmanager
def _bar() -> Iterator[Tell]:
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(show_speed=True),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console(),
        transient=True,
    )
    with bar:
        task = bar.add_task("starting", total=None)
        current = ""

        def tell(what: str, share: float) -> None:
            nonlocal current
            if what.split(":")[0] != current.split(":")[0]:
                bar.reset(task, total=None)
            current = what
            total = 1.0 if share > 0 else None
            bar.update(task, description=what, completed=share, total=total)

        yield tell


def _lines() -> Tell:
    current, last = "", 0.0

    def tell(what: str, share: float) -> None:
        nonlocal current, last
        now = time.monotonic()
        if what.split(":")[0] != current.split(":")[0] or now - last > 10:
            done = f" {share:.0%}" if share > 0 else ""
            sys.stderr.write(f"{what}{done}\n")
            last = now
        current = what

    return tell


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], out: Console, left: int = 1
) -> None:
    """A small table: the first ``left`` columns hold text, the others numbers."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for place, name in enumerate(columns):
        table.add_column(name, justify="left" if place < left else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(printable, row))
    out.print(table)
