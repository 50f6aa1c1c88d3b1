"""The context of every reader: a record of bad rows, a scratch folder, a progress callback.

Also the result of the readers of graded rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch import Tensor

from rankfold.data.read.files import lines
from rankfold.errors import pluralize
from rankfold.types import Progress, silent

T = TypeVar("T")
PLACES_SHOWN = 3
LINE = "\0line"  # the column with a row's line or number; no input column has this name
SPOOL_ROWS = 500_000


@dataclass(slots=True)
class BadRows:
    """Unusable rows: the reasons, their counts and the first places of each."""

    counts: dict[str, int] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def add(self, reason: str, place: str, n: int = 1) -> None:
        """Record ``n`` rows, the first of them at ``place`` (for example ``ratings.csv:17``)."""
        self.counts[reason] = self.counts.get(reason, 0) + n
        places = self.places.setdefault(reason, [])
        if len(places) < PLACES_SHOWN:
            places.append(place)

    def add_rows(self, reason: str, places: pl.Series, table: str | None = None) -> None:
        """Record rows at their places, or at their lines in a table."""
        for number, place in enumerate(places.head(PLACES_SHOWN)):
            where = place if table is None else f"{table}:{place}"
            self.add(reason, where, 0 if number else len(places))

    def describe(self) -> list[str]:
        """One line per reason: ``12 rows with a missing query (a.csv:17, a.csv:40, ...)``."""
        lines = []
        for reason, count in self.counts.items():
            more = ", ..." if count > len(self.places[reason]) else ""
            places = ", ".join(self.places[reason])
            lines.append(f"{pluralize(count, 'row')} with {reason} ({places}{more})")
        return lines

    def hint(self, default: str = "is it the right file?") -> str:
        """The same as a hint, or the default if no row was bad."""
        return "; ".join(self.describe()) or default

    def summary(self) -> list[dict[str, Any]]:
        """The same as plain JSON."""
        return [
            {"why": reason, "rows": n, "first": self.places[reason]}
            for reason, n in self.counts.items()
        ]


@dataclass(frozen=True, slots=True)
class Reading:
    """The context of a reader, besides its files."""

    scratch: Path  # an empty folder, removed once the data is prepared
    bad: BadRows = field(default_factory=BadRows)
    columns: dict[str, str] = field(default_factory=dict)  # the column of each side's keys
    progress: Progress = silent

    def new_file(self) -> Path:
        """A path for a new temporary file."""
        return self.scratch / f"{len(list(self.scratch.iterdir()))}.parquet"


@dataclass(frozen=True, slots=True)
class RawRows:
    """Rows as they were read."""

    name: str
    table: pl.DataFrame  # the columns of features; the place of each row in ``LINE``
    grades: pl.Series | None  # as written, null where missing
    keys: pl.Series | None = None
    images: Tensor | None = None  # [n, height, width, channels] uint8
    splits: NDArray[np.uint8] | None = None  # as numbers; None: the input has no splits
    order: Sequence[str] | None = None  # of the grades, lowest first, if the input has one
    grade_hint: str | None = None  # for missing grades; None: list the columns
    words: frozenset[str] = frozenset()  # columns of categories, even if their values are numbers
    without: Mapping[str, str] = field(default_factory=dict)  # dropped columns, and why
    set_aside: Mapping[str, int] = field(default_factory=dict)  # reasons for dropped rows, counts

    def __len__(self) -> int:
        return len(self.table)

    def take(self, kept: NDArray[np.bool_]) -> RawRows:
        """The rows where ``kept`` [n] is true."""
        if kept.all():
            return self
        mask = pl.Series(kept)
        parts = {name: getattr(self, name) for name in ("table", "grades", "keys")}
        series = {name: part.filter(mask) for name, part in parts.items() if part is not None}
        arrays = {name: getattr(self, name) for name in ("images", "splits")}
        taken = {name: array[kept] for name, array in arrays.items() if array is not None}
        return replace(self, **series, **taken)

    def in_split(self, number: int) -> RawRows:
        """The same rows, all in one split."""
        return replace(self, splits=np.full(len(self), number, dtype=np.uint8))


def parse_lines(path: Path, parse: Callable[[str], Iterable[T]], reading: Reading) -> Iterator[T]:
    """The rows that ``parse`` finds in each line of a text; a line that it refuses is a bad row."""
    for number, line in lines(path):
        if not line:
            continue
        try:
            rows = parse(line)
        except (ValueError, SyntaxError, TypeError, AttributeError, KeyError, RecursionError):
            reading.bad.add("an unreadable line", f"{path.name}:{number}")
        else:
            yield from rows


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
