"""MovieLens ratings by GroupLens: one reader for every release.

100K is ``u.data`` (tabs), 1M and 10M are ``ratings.dat`` (``::``), and 20M, 25M, 32M and latest are
``ratings.csv``. The format is detected from the first line, so a file may have any name. A release
may stay zipped.
"""

import re
from pathlib import Path
from typing import NamedTuple

import polars as pl

from rankfold.data.read.files import lines, unpacked
from rankfold.data.read.reading import Reading, scan_csv
from rankfold.errors import UserError

COLUMNS = {"query": pl.Int64, "candidate": pl.Int64, "grade": pl.Float64, "time": pl.Int64}


class _Layout(NamedTuple):
    """How one generation of releases writes its ratings."""

    file: str
    separator: str
    first_line: str  # a pattern
    header_lines: int


_LAYOUTS = (
    _Layout("u.data", "\t", r"\d+\t\d+\t\d+\t\d+", 0),
    _Layout("ratings.dat", "::", r"\d+::\d+::\d[\d.]*::\d+", 0),
    _Layout("ratings.csv", ",", "userId,movieId,rating,timestamp", 1),
)


def read(paths: list[Path], reading: Reading) -> pl.LazyFrame:
    """Rows ``query`` (user), ``candidate`` (movie), ``grade`` (stars) and ``time``.

    A cell that is not a number is left empty: it counts as a bad row later.
    """
    names = [layout.file for layout in _LAYOUTS]
    files = [unpacked(path, names, "MovieLens ratings", reading.scratch)[0] for path in paths]
    return pl.concat(map(_scan, files))


def _scan(path: Path) -> pl.LazyFrame:
    _, first_line = next(lines(path), (1, ""))
    layout = next((one for one in _LAYOUTS if re.fullmatch(one.first_line, first_line)), None)
    if layout is None:
        raise UserError(
            f"{path} is not a file of MovieLens ratings: its first line is {first_line[:80]!r}",
            hint="expected four numbers separated by tabs (u.data) or by :: (ratings.dat), "
            "or the header userId,movieId,rating,timestamp (ratings.csv)",
        )
    how = {"skip_lines": layout.header_lines, "separator": layout.separator[0]}
    return scan_csv(path, _schema(layout.separator), **how).select(list(COLUMNS))


def _schema(separator: str) -> dict[str, type[pl.DataType]]:
    """The columns as the CSV reader sees them.

    It only knows one-letter separators, so it sees an empty column inside each ``::``.
    """
    schema: dict[str, type[pl.DataType]] = {}
    for name, kind in COLUMNS.items():
        gap = {f"before {name}": pl.String} if schema and len(separator) == 2 else {}
        schema |= {**gap, name: kind}
    return schema
