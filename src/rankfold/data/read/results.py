"""What the readers return, besides frames of pairs: graded rows, tables by key, documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch import Tensor

from rankfold.data.read.bad_rows import BadRows
from rankfold.errors import UserError
from rankfold.types import Texts, Vocabulary


@dataclass(frozen=True, slots=True)
class RawRows:
    """Rows as they were read."""

    name: str
    table: pl.DataFrame  # the columns of features; the place of each row in ``LINE``
    grades: pl.Series | None  # as written, null where missing
    keys: pl.Series | None = None
    images: Tensor | None = None  # [n, height, width, channels] uint8
    splits: NDArray[np.uint8] | None = None  # as numbers; None: the input has no splits
    times: pl.Series | None = None  # Float64, for a split by time
    groups: pl.Series | None = None  # Int64 or text, for a split by whole groups
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
        frames = ("table", "grades", "keys", "times", "groups")
        parts = {name: getattr(self, name) for name in frames}
        series = {name: part.filter(mask) for name, part in parts.items() if part is not None}
        arrays = {name: getattr(self, name) for name in ("images", "splits")}
        taken = {name: array[kept] for name, array in arrays.items() if array is not None}
        return replace(self, **series, **taken)

    def in_split(self, number: int) -> RawRows:
        """The same rows, all in one split."""
        return replace(self, splits=np.full(len(self), number, dtype=np.uint8))


@dataclass(frozen=True, slots=True)
class KeyedTable:
    """A table by key, its columns as they were read."""

    name: str
    keys: pl.Series  # Int64 or text, without nulls or repeats
    values: pl.DataFrame  # the other columns
    bad: BadRows  # rows that were dropped
    words: frozenset[str] = frozenset()  # columns of categories, even if their values are numbers


@dataclass(frozen=True, slots=True)
class TextTable:
    """The texts of one side by key: words, bags of tokens, or the keys only."""

    name: str
    keys: pl.Series  # Int64 or text, without nulls or repeats
    words: pl.Series | None = None  # String, null where missing
    bags: Texts | None = None
    n_tokens: int = 0  # all tokens of the bags are below it
    bad: BadRows = field(default_factory=BadRows)  # rows that were dropped

    @property
    def has_texts(self) -> bool:
        return self.words is not None or self.bags is not None

    def with_keys(self, keys: pl.Series) -> TextTable:
        """The table with all of ``keys``, without words for the new ones; some must be common."""
        assert self.words is not None
        check_common(self, Vocabulary.of(keys))
        if self.keys.dtype != keys.dtype:
            odd = next(key for key in self.keys if not str(key).isdecimal())
            raise UserError(
                f"{self.name} has the key {odd!r}, but the keys of the labels are numbers",
                hint="labels are numbered from 0",
            )
        more = keys.filter(~keys.is_in(self.keys.implode()))
        words = self.words.extend_constant(None, len(more))
        return replace(self, keys=pl.concat([self.keys, more]), words=words)


@dataclass(frozen=True, slots=True)
class Documents:
    """Pairs of documents and labels, and the texts of either."""

    pairs: pl.LazyFrame  # query, candidate[, grade][, split]
    tables: Mapping[str, TextTable]  # by side; each of their keys gets a row
    excluded: pl.DataFrame | None = None  # query, candidate: never returned, and no pairs


def check_common(table: KeyedTable | TextTable, keys: Vocabulary) -> None:
    """A UserError if a table has none of the keys."""
    if not bool((keys.find(table.keys) >= 0).any()):
        theirs, ours = (", ".join(map(repr, part.head(3))) for part in (table.keys, keys.keys))
        column = _column_of_keys(table.values, keys) if isinstance(table, KeyedTable) else None
        there = "" if column is None else f"; column {column!r} has those: put it first"
        raise UserError(
            f"{table.name} has no key in common with the data",
            hint=f"its keys are {theirs}, ..., those of the data {ours}, ...{there}",
        )


def _column_of_keys(values: pl.DataFrame, keys: Vocabulary) -> str | None:
    """The column with the most keys, if at least half of its rows have one."""
    known = {column.name: keys.find(column.cast(pl.String)) >= 0 for column in values
             if not column.dtype.is_nested()}  # fmt: skip
    shares = {name: float(found.float().mean()) for name, found in known.items()}
    best = max(shares, key=lambda name: shares[name], default=None)
    return best if best is not None and shares[best] >= 0.5 else None
