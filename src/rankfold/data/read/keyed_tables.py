"""Tables with one row per key: a column of keys and any others.

The columns are kept as they were read. ``build.features`` turns them into features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import polars as pl

from rankfold.data.read import memory
from rankfold.data.read.columns import listing
from rankfold.data.read.files import expand
from rankfold.data.read.reading import LINE, BadRows, Reading
from rankfold.data.read.scan import is_text
from rankfold.data.read.tables import collect, read_columns
from rankfold.data.read.values import canonical, keys_of, text_columns
from rankfold.errors import UserError
from rankfold.types import Columns, Vocabulary

FEATURES = "features"
ACCEPTED = "pass a path, or a polars, pandas or Arrow table"


class Keyed(Protocol):
    """Any table by key."""

    @property
    def name(self) -> str: ...

    @property
    def keys(self) -> pl.Series: ...


@dataclass(frozen=True, slots=True)
class KeyedTable:
    """A table by key, its columns as they were read."""

    name: str
    keys: pl.Series  # Int64 or text, without nulls or repeats
    values: pl.DataFrame  # the other columns
    bad: BadRows  # rows that were dropped
    words: frozenset[str] = frozenset()  # columns of categories, even if their values are numbers


def open_table(
    table: Any,
    key_column: str | None = None,
    *,
    usual: str | None = None,
    like: Columns | None = None,
    what: str = FEATURES,
) -> KeyedTable:
    """Read a table by key.

    Args:
        table: a file (CSV, TSV, JSON lines, Parquet, Arrow) or a polars, pandas or Arrow table.
        key_column: the column of keys; None: ``usual`` if there is one, else the first.
        usual: the name that the key column has elsewhere.
        like: columns that are features and so not the keys.
        what: what the other columns hold, for messages.
    """
    check_source(table, what)
    with TemporaryDirectory(prefix="rankfold-") as scratch:
        reading = Reading(Path(scratch))
        if isinstance(table, str | Path):
            (path,) = expand([table])
            name, frame, typed = path.name, read_columns(path, reading), not is_text(path)
        else:
            name = f"the table of {what}"
            frame, typed = collect(memory.to_frame(table), name), True
    names = [column for column in frame.columns if column != LINE]
    taken = () if like is None else (*like.numbers, *like.levels)
    column = _key_column(names, key_column, usual, taken, name)
    keys = keys_of(frame, column, name)
    for line in frame[LINE].filter(keys.is_null()):
        reading.bad.add("a missing key", f"{name}:{line}")
    if len(names) == 1:
        raise UserError(f"{name} has no column of {what}", hint="it has a column of keys only")
    values = frame.filter(keys.is_not_null()).drop(LINE, column)
    words = text_columns(values) if typed else frozenset[str]()
    opened = KeyedTable(name, canonical(keys.drop_nulls()), values, reading.bad, words)
    _check_keys(opened, column)
    return opened


def check_source(table: Any, what: str = FEATURES) -> None:
    """A UserError unless ``table`` is one file or table; cheap, for use before long work."""
    if isinstance(table, str | Path):
        files = expand([table])
        if len(files) != 1 or files[0].is_dir():
            problem = "is a folder" if len(files) == 1 else f"matches {len(files)} files"
            raise UserError(f"{table} {problem}", hint=f"name one file of {what}")
    elif not (isinstance(table, pl.LazyFrame) or hasattr(table, "__arrow_c_stream__")):
        raise UserError(f"cannot read {what} from {type(table).__name__}", hint=ACCEPTED)


def _key_column(
    names: Sequence[str], wanted: str | None, usual: str | None, taken: Sequence[str], table: str
) -> str:
    free = [name for name in names if name not in taken]
    if wanted is not None and wanted not in names:
        raise UserError(f"{table} has no column {wanted!r}", hint=listing(names))
    if wanted is None and not free:
        raise UserError(f"{table} has no key column", hint=f"{listing(names)}; name it")
    return wanted or (usual if usual in free else free[0])


def _check_keys(table: KeyedTable, column: str) -> None:
    if len(table.keys) == 0:
        why = "; ".join(table.bad.describe())
        raise UserError(f"{table.name} has no usable rows", hint=why or "is it the right file?")
    again = table.keys.filter(table.keys.is_duplicated())
    if len(again):
        raise UserError(
            f"column {column!r} of {table.name} has the key {again[0]!r} more than once",
            hint="a table has one row per key; is this the key column?",
        )


def check_common(table: Keyed, keys: Vocabulary) -> None:
    """A UserError if a table has none of the keys."""
    if not bool((keys.find(table.keys) >= 0).any()):
        theirs, ours = (part.head(3).to_list() for part in (table.keys, keys.keys))
        raise UserError(
            f"{table.name} has no key in common with the data",
            hint=f"its keys are {_some(theirs)}, those of the data {_some(ours)}",
        )


def _some(keys: list[Any]) -> str:
    return ", ".join([*map(repr, keys), "..."])
