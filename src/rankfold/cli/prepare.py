"""``rankfold prepare``: turn interactions, documents or graded rows into a folder for fitting."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from rankfold.cli.console import console, print_json, progress
from rankfold.cli.dry_run import show_outline
from rankfold.cli.info import describe_data
from rankfold.cli.options import DryRun, Json, Quiet, takes, with_settings
from rankfold.data.options import Preparation
from rankfold.data.read.columns import MAX_NAMES_SHOWN
from rankfold.errors import printable

if TYPE_CHECKING:
    from rich.console import Console

    from rankfold.data.read.reading import Taken

T = TypeVar("T")
_ROLES = ("key", "query", "candidate", "grade", "time", "group", "text", "labels")
_WIDEST = 24  # characters of a cell
_COLUMNS = ("query_column", "candidate_column", "grade_column", "time_column", "text_column")
_SPLITS = ("train", "validation", "test")
_TABLES = ("query_features", "candidate_features", "query_texts", "candidate_texts")
_KINDS = {**dict.fromkeys(_SPLITS, list[str] | None), **dict.fromkeys(_TABLES, str | None)}
_METAVAR = {
    **dict.fromkeys(_KINDS, "FILE"),
    **dict.fromkeys(("source", "format", *_COLUMNS), "NAME"),
    **dict.fromkeys(("grades", "drop", "missing"), "A,B,..."),
    **{"separator": "MARK", "time_format": "FORMAT"},
    **{"label_separator": "MARK", "vocabulary": "N", "split": "RULE", "fold_in": "SHARE"},
}


@with_settings(Preparation, metavar=_METAVAR, kinds=_KINDS)
def command(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT",
            help="Files or globs: CSV, TSV, JSON lines, Parquet, Arrow, adjacency, plain, .gz or "
            ".zst; features: also .npz, KEEL .dat, folders of images.",
        ),
    ] = None,
    *,
    out: Annotated[Path, takes("DATA", "The folder to write.")],
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Also replace a folder of another kind, without asking."),
    ] = False,
    dry_run: DryRun = False,
    json: Json = False,
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Read interactions, documents or graded rows, split them, write a folder for `fit`."""
    from rankfold import storage
    from rankfold.data.prepare import prepare

    options |= {name: options[name] or None for name in _SPLITS}
    say = console(quiet=quiet or json)
    taken: list[Taken] = []
    options |= {"out": out, "echo": taken.append}

    def run(task: Callable[..., T], *, overwrite: bool) -> T:
        try:
            with progress(quiet=quiet or json) as report:
                return task(*(inputs or []), overwrite=overwrite, progress=report, **options)
        finally:
            describe_taken(taken, say)

    if dry_run:
        from rankfold.tasks.dry_run.prepare import outline_prepare

        return show_outline(run(outline_prepare, overwrite=overwrite), json=json, quiet=quiet)
    try:
        data = run(prepare, overwrite=overwrite)
    except storage.OtherKindError as error:
        if json or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        if not typer.confirm(f"{error}. Replace it?", err=True):
            raise typer.Exit(2) from None
        data = run(prepare, overwrite=True)
    if json:
        print_json({"data": str(out), "summary": dict(data.summary)})
    else:
        describe_data(data, str(out), say)


def describe_taken(tables: Sequence[Taken], say: Console) -> None:
    """Print which columns were taken for what, with the first rows; equal tables once."""
    done: list[object] = []
    for table in tables:
        if table.columns in done:
            continue
        done.append(table.columns)
        taken = table.columns.items()
        columns = ", ".join(
            role if role == name else f"{role} = {name}" for role, name in taken if role in _ROLES
        )
        if features := [role for role, _ in taken if role not in _ROLES]:
            columns += f"; features: {', '.join(features)}"
        unused = f"unused: {', '.join(table.unused[:MAX_NAMES_SHOWN])}" if table.unused else ""
        more = "".join(f"; {note}" for note in (*table.notes, unused) if note)
        say.print(f"{table.table}: {columns}{more}")
        cells = [tuple(table.columns.values()), *table.rows]
        texts = [[printable(" ".join(cell.split())) for cell in row] for row in cells]
        short = [
            [t if len(t) <= _WIDEST else f"{t[: _WIDEST - 3]}..." for t in row] for row in texts
        ]
        widths = [max(map(len, column)) for column in zip(*short, strict=True)]
        for row in short:
            line = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
            say.print(f"  {line.rstrip()}", style="dim")
