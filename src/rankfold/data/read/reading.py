"""The context of every reader: bad rows, a scratch folder, a progress callback."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from rankfold.data.read.bad_rows import BadRows
from rankfold.data.read.dialect import DEFAULT_DIALECT, Dialect
from rankfold.notebook import silent
from rankfold.types import Progress

ROWS_SHOWN = 3
LINE = "\0line"  # the column with a row's line or number; no input column has this name
SPOOL_ROWS = 500_000


class Taken(NamedTuple):
    """Which columns of a table were taken for what, and its first rows."""

    table: str
    columns: dict[str, str]  # by role
    rows: list[tuple[str, ...]]  # of these columns, as text
    unused: list[str]
    notes: list[str]  # what was guessed

    @staticmethod
    def of(
        table: str,
        names: Sequence[str],
        columns: Mapping[str, str | None],
        head: pl.DataFrame,
        notes: Sequence[str] = (),
    ) -> Taken:
        """From the columns by role and the first rows of a table, which has ``names``."""
        taken = {role: name for role, name in columns.items() if name is not None}
        shown = head.select(pl.col(name).alias(role) for role, name in taken.items())
        rows = [tuple("" if v is None else str(v) for v in row) for row in shown.rows()]
        unused = [name for name in names if name not in {*taken.values(), LINE}]
        return Taken(table, taken, rows, unused, list(notes))


@dataclass(frozen=True, slots=True)
class Reading:
    """The context of a reader, besides its files."""

    scratch: Path  # an empty folder, removed once the data is prepared
    bad: BadRows = field(default_factory=BadRows)
    columns: dict[str, str] = field(default_factory=dict)  # the column of each side's keys
    progress: Progress = silent
    dialect: Dialect = DEFAULT_DIALECT
    taken: list[Taken] = field(default_factory=list)  # of each table, for people

    def new_file(self) -> Path:
        """A path for a new temporary file."""
        return self.scratch / f"{len(list(self.scratch.iterdir()))}.parquet"


def scan_csv(path: Path, schema: Mapping[str, Any], **options: Any) -> pl.LazyFrame:
    """A file without a header or quotes. A cell of another type is left empty: a bad row later."""
    plain: dict[str, Any] = {
        "has_header": False,
        "quote_char": None,
        "ignore_errors": True,
        "glob": False,
    }
    return pl.scan_csv(path, schema=dict(schema), **plain, **options)


def spool(
    rows: Iterable[Sequence[Any]], schema: Mapping[str, Any], reading: Reading
) -> pl.LazyFrame:
    """``rows`` as temporary Parquet files, written in blocks: they need not fit in memory."""
    remaining = iter(rows)
    blocks = iter(lambda: list(islice(remaining, SPOOL_ROWS)), [])
    frames = (pl.DataFrame(block, schema=dict(schema), orient="row") for block in blocks)
    return spool_frames(frames, schema, reading)


def spool_frames(
    frames: Iterable[pl.DataFrame], schema: Mapping[str, Any], reading: Reading
) -> pl.LazyFrame:
    """The same for rows that arrive as small frames."""
    folder = reading.new_file()
    folder.mkdir()
    empty = pl.DataFrame(schema=dict(schema))  # at least one file, even without rows
    for number, frame in enumerate(chain([empty], frames)):
        frame.write_parquet(folder / f"{number:06}.parquet")
    return pl.scan_parquet(folder, glob=False)
