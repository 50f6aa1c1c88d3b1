"""Queries to rank for: texts or keys, one per row of a table, or texts, one per line.

In a table, one column holds the texts and an optional one their keys. Without keys the rows are
numbered from 0, including unusable rows. A table without texts holds keys of known queries. A line
is a text, or ``text TAB labels`` as for ``prepare``; the labels are ignored.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import polars as pl

from rankfold.data.read import record_reader
from rankfold.data.read.columns import NONE, choose, find_usual, listing
from rankfold.data.read.files import base_suffix
from rankfold.data.read.keyed_tables import USUAL_NAMES, as_words, line_numbers, numbered_lines
from rankfold.data.read.reading import LINE, Reading, spool
from rankfold.data.read.tables import holds_parquet, row_lines, spool_columns
from rankfold.data.read.values import canonical, check_distinct, concat, keys_of, row_numbers
from rankfold.errors import UserError

BLOCK_ROWS = 2**16  # texts in memory at a time


@dataclass(frozen=True, slots=True)
class QueryRows:
    """The rows of some files, one after another. The texts stay on disk."""

    keys: pl.Series  # Int64 or text, null for an unusable row
    texts: pl.LazyFrame | None  # a column ``text``, as many rows; None: keys only

    def blocks(self, step: int) -> Iterator[tuple[pl.Series, pl.Series]]:
        """Keys and texts of at most ``step`` rows, without unusable rows."""
        assert self.texts is not None
        for first in range(0, len(self.keys), BLOCK_ROWS):
            texts = self.texts.slice(first, BLOCK_ROWS).collect().to_series()
            keys = self.keys.slice(first, BLOCK_ROWS)
            keys, texts = keys.drop_nulls(), texts.filter(keys.is_not_null())
            for start in range(0, len(keys), step):
                yield keys.slice(start, step), texts.slice(start, step)


class QueryColumns(NamedTuple):
    """The columns of queries; None: guess it from the names, ``none``: use no column."""

    key: str | None = None
    text: str | None = None


def read_queries(paths: Sequence[Path], columns: QueryColumns, reading: Reading) -> QueryRows:
    """The rows of all files. All have texts or none has; the same holds for keys."""
    parts = [_read(path, columns, reading) for path in paths]
    for what in ("text", "key"):
        present = [getattr(part, what) is not None for part in parts]
        if any(present) and not all(present):
            one, other = (paths[present.index(has)].name for has in (True, False))
            raise UserError(
                f"{one} has a column of {what}s, {other} has none",
                hint="use the same column names in both",
            )
    if parts[0].key is None:
        keys = _numbered(parts)
    else:
        keys = concat([part.key for part in parts if part.key is not None])
        keys = keys.cast(canonical(keys.drop_nulls()).dtype)
    texts = [part.frame.select(text=part.text) for part in parts if part.text is not None]
    if texts:
        hint = "keys identify the results; use --query-column none to number the rows"
        check_distinct(keys, "the input has the key", hint)
    return QueryRows(keys, pl.concat(texts) if texts else None)


class _Part(NamedTuple):
    frame: pl.LazyFrame  # on disk
    key: pl.Series | None
    text: pl.Expr | None
    lines: Sequence[int] | None = None  # of all rows, if some are bad and rows are numbered


def _read(path: Path, columns: QueryColumns, reading: Reading) -> _Part:
    if path.is_dir() and not holds_parquet(path):
        raise UserError(f"{path} is a folder", hint="name the files in it")
    reading.progress(f"reading {path.name}", 0.0)
    n_bad = reading.bad.total
    if _holds_lines(path, columns):
        rows = spool(_lines(path, reading), {LINE: pl.Int64(), "text": pl.String()}, reading)
        part, all_lines = _Part(rows, None, pl.col("text")), line_numbers
    else:
        part, all_lines = _read_table(path, columns, reading), partial(row_lines, reading=reading)
    if part.key is not None or reading.bad.total == n_bad:
        return part
    return part._replace(lines=all_lines(path))


def _read_table(path: Path, columns: QueryColumns, reading: Reading) -> _Part:
    chosen: list[QueryColumns] = []

    def pick(names: Sequence[str]) -> list[str]:
        chosen.append(_choose(names, columns, path.name))
        return [name for name in chosen[-1] if name is not None]

    frame = spool_columns(path, pick, reading)
    key, text = chosen[-1]
    keys = None
    if key is not None:
        rows = frame.select(LINE, key).collect()
        keys = keys_of(rows, key, path.name)
        reading.bad.add_rows("a missing query", rows[LINE].filter(keys.is_null()), path.name)
    if text is not None:  # a UserError unless it is text
        as_words(frame.select(text).head(0).collect()[text], path.name)
    return _Part(frame, keys, None if text is None else pl.col(text).cast(pl.String))


def _holds_lines(path: Path, columns: QueryColumns) -> bool:
    """Whether a file holds lines, not a table: a .txt whose first line names no columns."""
    if base_suffix(path) not in (".txt", ""):
        return False
    names = next(record_reader.raw_lines(path), "").strip().split("\t")
    usual = len(names) > 1 and find_usual(USUAL_NAMES["text"], names) is not None
    return not (usual or {columns.text, columns.key} & set(names))


def _lines(path: Path, reading: Reading) -> Iterator[tuple[int, str]]:
    """The lines that are UTF-8, including blank lines: every line is a row."""
    for number, line in numbered_lines(path):
        text, tab, rest = line.rstrip("\r\n").rpartition("\t")
        text = text if tab else rest
        if record_reader.is_decoded(text):
            yield number, text
        else:
            reading.bad.add(record_reader.NOT_UTF8, f"{path.name}:{number}")


def _choose(names: Sequence[str], columns: QueryColumns, table: str) -> QueryColumns:
    """The columns named, else those with a usual name."""
    wanted = choose(names, {"text": columns.text, "key": columns.key}, USUAL_NAMES, table)
    chosen = QueryColumns(
        *(None if wanted[role] == NONE else wanted[role] for role in QueryColumns._fields)
    )
    if chosen == (None, None):
        raise UserError(
            f"cannot tell which column of {table} holds the text",
            hint=f"{listing(names)}; use --text-column NAME, or --query-column NAME for known keys",
        )
    return chosen


def _numbered(parts: Sequence[_Part]) -> pl.Series:
    """The number of each usable row among all rows of all files."""
    numbers, n = [], 0
    for part in parts:
        lines = part.frame.select(pl.col(LINE).cast(pl.Int64)).collect().to_series()
        all_lines = lines if part.lines is None else part.lines
        numbers.append(row_numbers(lines, all_lines) + n)
        n += len(all_lines)
    return pl.concat(numbers)
