"""Tables from files and frames: rows of pairs, keys, or all columns.

Pairs become a temporary Parquet file of the needed columns, with a reason beside each unusable row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import polars as pl

from rankfold.data.read import record_reader, values
from rankfold.data.read.columns import PairColumns, check_header, choose_columns, guess, listing
from rankfold.data.read.reading import LINE, PLACES_SHOWN, Reading
from rankfold.data.read.scan import (
    column_names,
    is_text,
    readable,
    scan_binary,
    scan_text,
    separator,
)
from rankfold.errors import UserError

T = TypeVar("T")
_SPOOL_GROUP = 2**16  # rows of a temporary file that are read at once
_NAMES_HINT = "add a line with the column names"
_MALFORMED = {"grade": "not a number", "time": "neither a number nor a date"}


def read_table(
    path: Path, columns: PairColumns, reading: Reading, *, header: bool = True
) -> pl.LazyFrame:
    """Rows ``query, candidate[, grade][, time]`` of a file; bad rows are recorded and dropped."""

    def choose(names: Sequence[str]) -> list[str]:
        if header and is_text(path) and columns.query is columns.candidate is None:
            hint = "use --no-header if it is a row, or --query-column and --candidate-column"
            check_header(names, path.name, hint)
        return [name for name in choose_columns(names, columns, path.name) if name is not None]

    def sink(raw: pl.LazyFrame) -> pl.LazyFrame:
        return _sink(raw, columns, path.name, reading)

    return _usable(_scan(path, choose, sink, reading, header=header), path.name, reading)


def read_frame(
    frame: pl.LazyFrame, columns: PairColumns, name: str, reading: Reading
) -> pl.LazyFrame:
    """The usable rows of a frame in memory; bad rows are recorded by number."""
    with readable(name):
        rows = _sink(frame.with_row_index(LINE, offset=1), columns, name, reading)
    return _usable(rows, name, reading)


def stack(tables: Sequence[tuple[str, pl.LazyFrame]]) -> pl.LazyFrame:
    """Named tables, one after another; keys of different types become text."""
    frames = [frame for _, frame in tables]
    schemas = [frame.collect_schema() for frame in frames]
    for role in ("grade", "time"):
        present = [role in schema for schema in schemas]
        if any(present) and not all(present):
            one, other = (tables[present.index(has)][0] for has in (True, False))
            raise UserError(
                f"{one} has a {role} column, {other} has none",
                hint=f"use the same name in both, or --{role}-column none",
            )
    names = schemas[0].names()
    mixed = [name for name in names if len({schema[name] for schema in schemas}) > 1]
    return pl.concat(
        [frame.select(names).with_columns(pl.col(mixed).cast(pl.String)) for frame in frames]
    )


def read_keys(path: Path, column: str | None, reading: Reading) -> pl.Series:
    """The query keys of one file, in its order; rows without one are dropped."""

    def choose(names: Sequence[str]) -> list[str]:
        if column is None and is_text(path):
            check_header(names, path.name, hint="add a line with a column name such as query")
        name = column or guess("query", names) or (names[0] if len(names) == 1 else "")
        if name not in names:
            problem = f"no column {name!r}" if name else "no column with a usual name of queries"
            raise UserError(
                f"{path.name} has {problem}", hint=f"{listing(names)}; use --query-column NAME"
            )
        return [name]

    def collect(raw: pl.LazyFrame) -> pl.Series:
        (name,) = column_names(raw)
        where = f"column {name!r} of {path.name}"
        key = values.key(pl.col(name), raw.collect_schema()[name], where)
        return raw.select(key.alias("query")).drop_nulls().collect().to_series()

    return _scan(path, choose, collect, reading)


def read_columns(path: Path, reading: Reading) -> pl.DataFrame:
    """All columns of one file, lines in ``LINE``; those of a text file as text."""

    def choose(names: Sequence[str]) -> Sequence[str]:
        if is_text(path):
            check_header(names, path.name, _NAMES_HINT)
        return names

    return _scan(path, choose, lambda raw: raw.collect(), reading)


def spool_columns(path: Path, pick: record_reader.Choose, reading: Reading) -> pl.LazyFrame:
    """Some columns of one file as a temporary file: there may be many rows."""

    def choose(names: Sequence[str]) -> Sequence[str]:
        check_header(names, path.name, _NAMES_HINT)
        return pick(names)

    def sink(raw: pl.LazyFrame) -> pl.LazyFrame:
        copy = reading.new_file()
        raw.sink_parquet(copy, row_group_size=_SPOOL_GROUP)
        return pl.scan_parquet(copy, glob=False)

    return _scan(path, choose, sink, reading)


def _scan(
    path: Path,
    choose: record_reader.Choose,
    use: Callable[[pl.LazyFrame], T],
    reading: Reading,
    *,
    header: bool = True,
) -> T:
    """Pass the chosen columns of a file of any format to ``use``."""
    if is_text(path):
        return scan_text(path, choose, use, reading, header=header)
    with readable(path.name):
        raw = scan_binary(path, reading)
        return use(raw.select(LINE, *choose(column_names(raw))))


def row_lines(path: Path) -> list[int]:
    """The line of each row of a text table, including rows that ``read_columns`` drops."""
    return record_reader.row_lines(path, separator(path))


def collect(frame: pl.LazyFrame, name: str) -> pl.DataFrame:
    """All columns of a frame in memory, its rows numbered in ``LINE``."""
    with readable(name):
        return frame.with_row_index(LINE, offset=1).collect()


# ---------------------------------------------------------------------------------- rows


def _sink(raw: pl.LazyFrame, columns: PairColumns, table: str, reading: Reading) -> pl.LazyFrame:
    """The chosen columns and, in ``reason``, why a row is unusable; as a temporary file."""
    schema = raw.collect_schema()
    chosen = choose_columns(column_names(raw), columns, table)
    for role in ("query", "candidate"):
        reading.columns.setdefault(role, getattr(chosen, role))
    cells: dict[str, pl.Expr] = {}
    reasons: list[tuple[pl.Expr, str]] = []
    for role, name in chosen._asdict().items():
        if name is None:
            continue
        column, dtype = pl.col(name), schema[name]
        value = values.CONVERTERS[role](column, dtype, f"column {name!r} of {table}")
        missing = column.is_null() if dtype != pl.String else column.is_null() | (column == "")
        cells[role] = value
        if role in ("query", "candidate"):
            reasons.append((value.is_null(), f"a missing {role}"))
        else:
            malformed = ~value.is_finite().fill_null(value=False)
            reasons.append((missing, f"a missing {role}"))
            reasons.append((malformed, f"a {role} that is {_MALFORMED[role]}"))
    reason = pl.coalesce(*(pl.when(bad).then(pl.lit(why)) for bad, why in reasons))
    path = reading.new_file()
    raw.select(LINE, **cells, reason=reason).sink_parquet(path)
    return pl.scan_parquet(path, glob=False)


def _usable(frame: pl.LazyFrame, table: str, reading: Reading) -> pl.LazyFrame:
    """The rows without a ``reason``; the others are recorded with their first lines."""
    bad = (
        frame.filter(pl.col("reason").is_not_null())
        .group_by("reason")
        .agg(n=pl.len(), first=pl.col(LINE).sort().head(PLACES_SHOWN))
        .sort(pl.col("first").list.first(), "reason")
        .collect(engine="streaming")
    )
    for reason, n, first in bad.iter_rows():
        for line in first:
            reading.bad.add(reason, f"{table}:{line}", 0)
        reading.bad.counts[reason] += n
    return frame.filter(pl.col("reason").is_null()).drop("reason", LINE)
