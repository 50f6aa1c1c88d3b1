"""What to rank for: texts or keys, one per row of a table or, texts alone, one per line.

In a table, one column holds the texts and another, if there is one, the keys to tell the lists by;
without it the rows are counted from 0, those that cannot be used too. A table without texts holds
keys of known queries. A line is a text, or ``text TAB labels`` as for ``prepare``: the labels are
not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import polars as pl

from rankfold.data.build.pairs import canonical
from rankfold.data.read import record_reader
from rankfold.data.read.documents import (
    NOT_TEXT,
    USUAL_NAMES,
    line_numbers,
    numbered_lines,
    words_of,
)
from rankfold.data.read.files import LINE, Reading, base_suffix, spool
from rankfold.data.read.tables import NONE, keys_of, listing, named, row_lines, spool_columns
from rankfold.errors import UserError

ROWS = 2**16  # of texts, held at a time


@dataclass(frozen=True, slots=True)
class Questions:
    """Rows of some files, one after the other. The texts stay on disk."""

    keys: pl.Series  # Int64 or text, null where a row cannot be used
    texts: pl.LazyFrame | None  # a column ``text``, as many rows; None: the keys are all there is

    def blocks(self, step: int) -> Iterator[tuple[pl.Series, pl.Series]]:
        """Keys and texts of so many rows at most, without those that cannot be used."""
        assert self.texts is not None
        for first in range(0, len(self.keys), ROWS):
            texts = self.texts.slice(first, ROWS).collect().to_series()
            usable = self.keys.slice(first, ROWS).is_not_null()
            keys, texts = (part.filter(usable) for part in (self.keys.slice(first, ROWS), texts))
            for start in range(0, len(keys), step):
                yield keys.slice(start, step), texts.slice(start, step)


class Asked(NamedTuple):
    """The columns to read, None where they are to be guessed; ``none``: do without."""

    key: str | None = None
    text: str | None = None


def read_questions(paths: Sequence[Path], asked: Asked, reading: Reading) -> Questions:
    """The rows of all files; either all have texts or none has, and likewise keys."""
    parts = [_read(path, asked, reading) for path in paths]
    for what in ("text", "key"):
        having = [getattr(part, what) is not None for part in parts]
        if any(having) and not all(having):
            one, other = (paths[having.index(has)].name for has in (True, False))
            raise UserError(
                f"{one} has a column of {what}s, {other} has none", hint="name it alike in both"
            )
    keys = _numbered(parts) if parts[0].key is None else _joined(parts)
    texts = [part.frame.select(text=part.text) for part in parts if part.text is not None]
    if texts and (again := keys.filter(keys.is_duplicated() & keys.is_not_null())).len():
        raise UserError(
            f"the key {again[0]!r} is there more than once",
            hint="lists are told apart by their keys; use --query-column none to count the rows",
        )
    return Questions(keys, pl.concat(texts) if texts else None)


class _Part(NamedTuple):
    frame: pl.LazyFrame  # on disk
    key: pl.Series | None
    text: pl.Expr | None
    lines: pl.Series | None = None  # of all its rows, where some of those to be counted are bad


def _read(path: Path, asked: Asked, reading: Reading) -> _Part:
    if path.is_dir():
        raise UserError(f"{path} is a folder", hint="name the files in it")
    reading.progress(f"reading {path.name}", 0.0)
    n_bad = reading.bad.total
    if _holds_lines(path, asked):
        part, every = _read_lines(path, reading), line_numbers
    else:
        part, every = _read_table(path, asked, reading), row_lines
    if part.key is not None or reading.bad.total == n_bad:
        return part
    return part._replace(lines=pl.Series(every(path), dtype=pl.Int64))


def _read_table(path: Path, asked: Asked, reading: Reading) -> _Part:
    chosen: list[Asked] = []

    def pick(names: Sequence[str]) -> list[str]:
        chosen.append(_choose(names, asked, path.name))
        return [name for name in chosen[-1] if name is not None]

    frame = spool_columns(path, pick, reading)
    key, text = chosen[-1]
    if text is not None:
        words_of(frame.select(text).head(0).collect()[text], path.name)  # it can be text
    return _Part(
        frame,
        None if key is None else _keys(frame, key, path.name, reading),
        None if text is None else pl.col(text).cast(pl.String),
    )


def _holds_lines(path: Path, asked: Asked) -> bool:
    """Whether a file is one of lines: a .txt whose first line does not name the columns."""
    if base_suffix(path) not in (".txt", ""):
        return False
    names = next(record_reader.raw_lines(path), "").strip().split("\t")
    usual = len(names) > 1 and named(USUAL_NAMES["text"], names) is not None
    return not (usual or {asked.text, asked.key} & set(names))


def _read_lines(path: Path, reading: Reading) -> _Part:
    schema = {LINE: pl.Int64(), "text": pl.String()}
    return _Part(spool(_lines(path, reading), schema, reading), None, pl.col("text"))


def _lines(path: Path, reading: Reading) -> Iterator[tuple[int, str]]:
    """The lines that are UTF-8, blank ones too: rows are lines."""
    for number, line in numbered_lines(path):
        text, tab, rest = line.rstrip("\r\n").rpartition("\t")
        text = text if tab else rest
        if record_reader.is_decoded(text):
            yield number, text
        else:
            reading.bad.add(NOT_TEXT, f"{path.name}:{number}")


def _choose(names: Sequence[str], asked: Asked, table: str) -> Asked:
    """The columns asked for, else those with a usual name."""
    for wanted, option in ((asked.key, "--query-column"), (asked.text, "--text-column")):
        if wanted is not None and wanted not in (NONE, *names):
            hint = f"{listing(names)}; use {option} NAME"
            raise UserError(f"{table} has no column {wanted!r}", hint=hint)
    free = [name for name in names if name != asked.key]
    text = asked.text or named(USUAL_NAMES["text"], free)
    key = asked.key or named(USUAL_NAMES["key"], [name for name in names if name != text])
    found = Asked(*(None if name == NONE else name for name in (key, text)))
    if found == (None, None):
        raise UserError(
            f"cannot tell which column of {table} holds the text",
            hint=f"{listing(names)}; use --text-column NAME, or --query-column NAME for known keys",
        )
    return found


def _keys(frame: pl.LazyFrame, name: str, table: str, reading: Reading) -> pl.Series:
    rows = frame.select(LINE, name).collect()
    keys = keys_of(rows, name, table)
    for line in rows[LINE].filter(keys.is_null()):
        reading.bad.add("a missing query", f"{table}:{line}")
    return keys


def _numbered(parts: Sequence[_Part]) -> pl.Series:
    """The number of each usable row among all rows of all files."""
    found, n = [], 0
    for part in parts:
        lines = part.frame.select(pl.col(LINE).cast(pl.Int64)).collect().to_series()
        every = lines if part.lines is None else part.lines
        found.append(every.search_sorted(lines).cast(pl.Int64) + n)
        n += len(every)
    return pl.concat(found)


def _joined(parts: Sequence[_Part]) -> pl.Series:
    keys = [part.key for part in parts if part.key is not None]
    if len({part.dtype for part in keys}) > 1:
        keys = [part.cast(pl.String) for part in keys]
    joined = pl.concat(keys)
    usable = canonical(joined.drop_nulls())
    return joined.cast(usable.dtype)
