"""Side features: what a table says of queries or of candidates, besides their pairs.

A table has a column of keys, each there once, and any others. Columns of numbers and truth values
become numbers, columns of text become categories; what is missing stays missing. Where a file has
no types (CSV, JSON lines), text that is all numbers is numbers; where it has, text is text. Columns
of other types (lists, dates, bytes), and those without any value, are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import polars as pl
import torch
from torch import Tensor

from rankfold.data.build.align import merge
from rankfold.data.build.pairs import canonical
from rankfold.data.read import memory
from rankfold.data.read.files import LINE, BadRows, Reading, expand
from rankfold.data.read.tables import collect, is_text, keys_of, listing, read_columns
from rankfold.errors import UserError, pluralize
from rankfold.types import Columns, Features, Vocabulary

MISSING = ("", "na", "n/a", "nan", "null", "none", "\\n")  # among numbers, in any letters
TRUTH = {"false": "0", "true": "1"}
TEXT = (pl.String, pl.Categorical, pl.Enum)
NEARLY_ALL = 0.9
DECIMAL_COMMA = r"^[-+]?\d*,\d+(e[-+]?\d+)?$"
FEATURES = "features"
ACCEPTED = "pass a path, or a polars, pandas or Arrow table"


@dataclass(frozen=True, slots=True)
class Table:
    """A table that was read, not yet understood: its columns stand as they were."""

    name: str
    keys: pl.Series  # Int64 or text, none missing, none twice
    values: pl.DataFrame  # the other columns
    bad: BadRows  # rows that were left out
    words: frozenset[str] = frozenset()  # columns of categories, also where these are numbers


def read(
    table: Any, key_column: str | None, keys: Vocabulary, like: Columns | None = None
) -> Features:
    """The features of ``keys``, row by row; a key that the table does not have has none.

    Args:
        table: a file (CSV, TSV, JSON lines, Parquet, Arrow) or a polars, pandas or Arrow table.
        key_column: the column of keys; None: the first that is not among ``like``.
        keys: whose features; other keys of the table are left out.
        like: the columns to find, by name and kind; values that these do not know become -1.
            None: all columns of the table.
    """
    found = open_table(table, key_column, like=like)
    check_common(found, keys)
    return align(found, keys, like)


# ---------------------------------------------------------------------------------- tables


def open_table(
    table: Any,
    key_column: str | None = None,
    *,
    usual: str | None = None,
    like: Columns | None = None,
    what: str = FEATURES,
) -> Table:
    """Read a table. Its keys are ``key_column``, else ``usual`` if it has that, else the first.

    ``what`` its other columns hold is for messages.
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
        raise UserError(f"{name} has no column of {what}", hint="it has the keys alone")
    values = frame.filter(keys.is_not_null()).drop(LINE, column)
    words = words_of(values) if typed else frozenset[str]()
    found = Table(name, canonical(keys.drop_nulls()), values, reading.bad, words)
    _check_keys(found, column)
    return found


def check_source(table: Any, what: str = FEATURES) -> None:
    """A UserError for what is no table, before anything long is done."""
    if isinstance(table, str | Path):
        files = expand([table])
        if len(files) != 1 or files[0].is_dir():
            found = "is a folder" if len(files) == 1 else f"names {len(files)} files"
            raise UserError(f"{table} {found}", hint=f"{what} are one file")
    elif not (isinstance(table, pl.LazyFrame) or hasattr(table, "__arrow_c_stream__")):
        raise UserError(f"cannot read {what} from {type(table).__name__}", hint=ACCEPTED)


def _key_column(
    names: Sequence[str], asked: str | None, usual: str | None, taken: Sequence[str], table: str
) -> str:
    free = [name for name in names if name not in taken]
    if asked is not None and asked not in names:
        raise UserError(f"{table} has no column {asked!r} of keys", hint=listing(names))
    if asked is None and not free:
        raise UserError(f"{table} has no column of keys", hint=f"{listing(names)}; name the one")
    return asked or (usual if usual in free else free[0])


def _check_keys(table: Table, column: str) -> None:
    if len(table.keys) == 0:
        why = "; ".join(table.bad.describe())
        raise UserError(f"{table.name} has no usable rows", hint=why or "is it the right file?")
    again = table.keys.filter(table.keys.is_duplicated())
    if len(again):
        raise UserError(
            f"column {column!r} of {table.name} has the key {again[0]!r} more than once",
            hint="it has to have one row per key; is this the column of the keys?",
        )


class Keyed(Protocol):
    """A table by key, of whatever."""

    @property
    def name(self) -> str: ...

    @property
    def keys(self) -> pl.Series: ...


def check_common(table: Keyed, keys: Vocabulary) -> None:
    """A UserError where a table says nothing of any of the keys."""
    if not bool((keys.find(table.keys) >= 0).any()):
        theirs, ours = (part.head(3).to_list() for part in (table.keys, keys.keys))
        raise UserError(
            f"{table.name} has no key in common with the data",
            hint=f"its keys are {_some(theirs)}, those of the data {_some(ours)}",
        )


def _some(keys: list[Any]) -> str:
    return ", ".join([*map(repr, keys), "..."])


def joined(keys: pl.Series, *tables: Keyed | None) -> Vocabulary:
    """The keys, and those that stand in one of the tables alone, if there are such."""
    known = every = Vocabulary(len(keys), lambda: keys)
    for table in tables:
        if table is not None:
            check_common(table, known)
            every = merge(every, table.keys)
    return every


def left_out(table: Table, features: Features) -> list[str]:
    """The columns that could not be used."""
    used = {*features.columns.numbers, *features.columns.levels}
    return sorted(set(table.values.columns) - used)


def doubtful(table: Table, features: Features) -> list[dict[str, str]]:
    """The columns of categories that may have been meant as numbers, and why they are none."""
    told = {name: doubt(table.values[name]) for name in features.columns.levels}
    return [{"column": name, "why": why} for name, why in told.items() if why is not None]


# ---------------------------------------------------------------------------------- columns


def align(table: Table, keys: Vocabulary, like: Columns | None = None) -> Features:
    """The features of each of the keys; missing where the table does not have it."""
    rows = keys.find(table.keys)
    known = torch.nonzero(rows >= 0).flatten()
    rows, values = rows[known], table.values[known.numpy()]
    columns = _columns(values, table) if like is None else like
    numbers = torch.full((len(keys), len(columns.numbers)), torch.nan)
    categories = torch.full((len(keys), len(columns.levels)), -1, dtype=torch.int32)
    numbers[rows], categories[rows] = fill(values, columns, table.name)
    return Features(numbers, categories, columns)


def fill(values: pl.DataFrame, columns: Columns, table: str) -> tuple[Tensor, Tensor]:
    """Numbers [n, F] and categories [n, C] of each row, by columns that are known."""
    numbers = torch.full((len(values), len(columns.numbers)), torch.nan)
    categories = torch.full((len(values), len(columns.levels)), -1, dtype=torch.int32)
    for place, name in enumerate(columns.numbers):
        numbers[:, place] = _numbers(values, name, table)
    for place, (name, levels) in enumerate(columns.levels.items()):
        categories[:, place] = _places(values, name, levels, table)
    return numbers, categories


def unknown(values: pl.DataFrame, columns: Columns, categories: Tensor) -> dict[str, int]:
    """The columns with words that are none of their levels, and how many rows have such a word.

    ``categories`` [n, C] is what ``fill`` made of the values.
    """
    found = {}
    for place, name in enumerate(columns.levels):
        text = to_text(values[name])
        assert text is not None  # else ``fill`` had refused it
        there = torch.from_numpy(text.is_not_null().to_numpy(writable=True))
        found[name] = int(((categories[:, place] < 0) & there).sum())
    return {name: n for name, n in found.items() if n}


def _columns(values: pl.DataFrame, table: Table) -> Columns:
    """The usable columns: those with a value."""
    numbers: list[str] = []
    levels: dict[str, tuple[str, ...]] = {}
    for name in sorted(values.columns):
        found = understood(values[name], words=name in table.words)
        if found is None or not found.count():
            continue
        if found.dtype == pl.String:
            levels[name] = levels_of(found)
        else:
            numbers.append(name)
    if not numbers and not levels:
        raise UserError(
            f"{table.name} has no column of features",
            hint=f"{listing(values.columns)} beside the keys; numbers and text can be used",
        )
    return Columns(tuple(numbers), levels)


def words_of(frame: pl.DataFrame) -> frozenset[str]:
    """The columns of words of a table that has types: these say it, also of words like 007."""
    return frozenset(column.name for column in frame if column.dtype in TEXT and column.count())


def understood(column: pl.Series, *, words: bool) -> pl.Series | None:
    """Numbers where every value is one, else words where it is text; None where it is neither.

    ``words`` are never numbers.
    """
    numbers = None if words else to_numbers(column)
    return to_text(column) if numbers is None else numbers


def doubt(column: pl.Series, places: pl.Series | None = None) -> str | None:
    """Why a column is one of words though nearly all of it is numbers, if so."""
    if column.dtype != pl.String:
        return None
    numbers, wrong = _parsed(column)
    commas = wrong & column.str.strip_chars().str.contains(DECIMAL_COMMA).fill_null(value=False)
    n_nearly = numbers.count() + int(commas.sum())
    if n_nearly <= NEARLY_ALL * (numbers.count() + int(wrong.sum())):
        return None
    first = commas if commas.any() else wrong
    if (place := first.arg_max()) is not None and first[place]:
        where = "" if places is None else f" ({places[place]})"
        told = f"{column[place]!r}{where} is no number"
        return f"{told}: decimals have a point, thousands no mark" if commas.any() else told
    measured = numbers.filter(numbers.is_finite()) % 1 != 0  # codes are whole
    return "its numbers are text" if measured.any() else None


def levels_of(words: pl.Series) -> tuple[str, ...]:
    """The different ones, ascending."""
    return tuple(words.drop_nulls().unique().sort())


def to_numbers(
    column: pl.Series, kind: type[pl.Float32] | type[pl.Float64] = pl.Float32
) -> pl.Series | None:
    """Finite numbers, null where there is none; None where the column is not one of numbers."""
    if column.dtype in TEXT:
        found, wrong = _parsed(column)
        if wrong.any():
            return None
    elif column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null):
        found = column
    else:
        return None
    found = found.cast(kind)
    return _where(found.is_finite(), found)


def _parsed(column: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Text as numbers, and which of it is neither a number nor missing."""
    text = column.cast(pl.String).str.strip_chars().str.to_lowercase()
    numbers = text.replace(TRUTH).cast(pl.Float64, strict=False)
    return numbers, numbers.is_null() & text.is_not_null() & ~text.is_in(MISSING)


def to_text(column: pl.Series) -> pl.Series | None:
    """Words, null where there is none; None where the column is not one of words.

    Truth values are true and false. Whole numbers are words as well, also where they are floats:
    integers with gaps are such in pandas.
    """
    if column.dtype.is_float():
        column = _where(column.is_not_nan(), column)
        whole = column.cast(pl.Int64, strict=False)
        if not (whole.cast(column.dtype).eq_missing(column)).all():
            return None
        column = whole
    if not (column.dtype in (*TEXT, pl.Boolean, pl.Null) or column.dtype.is_integer()):
        return None
    text = column.cast(pl.String)
    return _where(text != "", text)


def _where(good: pl.Series, values: pl.Series) -> pl.Series:
    """The values, null where they are not good."""
    return pl.select(pl.when(good).then(values)).to_series()


def _numbers(values: pl.DataFrame, name: str, table: str) -> Tensor:
    found = to_numbers(_column(values, name, table))
    if found is None:
        raise _mistyped(values, name, table, "numbers")
    return torch.from_numpy(found.fill_null(float("nan")).to_numpy(writable=True))


def _places(values: pl.DataFrame, name: str, levels: Sequence[str], table: str) -> Tensor:
    found = to_text(_column(values, name, table))
    if found is None:
        raise _mistyped(values, name, table, "text")
    if values[name].dtype not in TEXT:
        found = found.replace(_spellings(levels))
    known = pl.Series(levels, dtype=pl.String)
    return Vocabulary(len(known), lambda: known).find(found).to(torch.int32)


def _spellings(levels: Sequence[str]) -> dict[str, str]:
    """How levels that come from a file have true, false and whole numbers: True, say, or 3.0."""
    known = set(levels)
    plain = (x.lower() if x.lower() in TRUTH else x.removesuffix(".0") for x in levels)
    return {word: x for word, x in zip(plain, levels, strict=True) if word not in known}


def _column(values: pl.DataFrame, name: str, table: str) -> pl.Series:
    if name not in values.columns:
        raise UserError(
            f"{table} has no column {name!r}, which the model was fitted with",
            hint=f"{listing(values.columns)} beside the keys; the values may be missing",
        )
    return values[name]


def _mistyped(values: pl.DataFrame, name: str, table: str, wanted: str) -> UserError:
    """For a column of another type or, where it is text, with values that are no numbers."""
    column = values[name]
    found, hint = str(column.dtype), "the columns have to be those that the model was fitted on"
    if column.dtype in TEXT:
        wrong = _parsed(column)[1]
        place, n = wrong.arg_max(), int(wrong.sum())
        assert place is not None  # or all of it were numbers
        where = f" ({values[LINE][place]})" if LINE in values.columns else ""
        found = f"{column[place]!r}{where}"
        if n < len(column):
            rows = "this row" if n == 1 else f"it and {pluralize(n - 1, 'row')} like it"
            hint = f"correct {rows}, or leave the value empty: then it is missing"
    return UserError(
        f"column {name!r} of {table} holds {found}, but the model was fitted with {wanted}",
        hint=hint,
    )
