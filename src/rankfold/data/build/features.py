"""Side features: the columns of a table by key, as numbers and categories.

Columns of numbers and booleans become numbers, columns of text become categories; missing values
stay missing. In an untyped file (CSV, JSON lines) text that is all numbers is numbers; in a typed
one text is text. Columns of other types (lists, dates, bytes) and empty columns are dropped.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import polars as pl
import torch
from torch import Tensor

from rankfold.data.read.columns import listing
from rankfold.data.read.reading import LINE
from rankfold.data.read.results import KeyedTable
from rankfold.data.read.values import TEXT_TYPES, plain_number, times_of
from rankfold.errors import UserError, pluralize
from rankfold.types import Columns, Features, Vocabulary

MISSING = ("", "na", "n/a", "nan", "null", "none", "\\n")  # among numbers, in any case
_BOOLEANS = {"false": "0", "true": "1"}
_DOUBTFUL_SHARE = 0.9  # of numbers in a text column, above which it may be meant as numbers
_FEW_ROWS = 32  # at most this many words are looked up one by one: a polars query is slow
_DATE = r"^\d{4}-\d\d-\d\d"
_DECIMAL_COMMA = r"^[-+]?\d*,\d+(e[-+]?\d+)?$"


def align(table: KeyedTable, keys: Vocabulary, like: Columns | None = None) -> Features:
    """The features of each key; missing for a key that the table does not have.

    ``like`` are the columns to use, by name and kind; unknown values become -1. None: all columns.
    """
    rows = keys.find(table.keys)
    known = torch.nonzero(rows >= 0).flatten()
    rows, values = rows[known], table.values[known.numpy()]
    columns = _columns(values, table) if like is None else like
    numbers = torch.full((len(keys), len(columns.numbers)), torch.nan)
    categories = torch.full((len(keys), len(columns.levels)), -1, dtype=torch.int32)
    numbers[rows], categories[rows] = fill(values, columns, table.name)
    return Features(numbers, categories, columns)


def fill(values: pl.DataFrame, columns: Columns, table: str) -> tuple[Tensor, Tensor]:
    """Numbers [n, F] and categories [n, C] of each row, by a given schema."""
    numbers = torch.full((len(values), len(columns.numbers)), torch.nan)
    categories = torch.full((len(values), len(columns.levels)), -1, dtype=torch.int32)
    for place, name in enumerate(columns.numbers):
        numbers[:, place] = _numbers(values, name, table)
    numbers.nan_to_num_(nan=torch.nan, posinf=torch.nan, neginf=torch.nan)
    for place, (name, levels) in enumerate(columns.levels.items()):
        categories[:, place] = _places(values, name, levels, table)
    return numbers, categories


def unknown(values: pl.DataFrame, columns: Columns, categories: Tensor) -> dict[str, int]:
    """The columns with values that are not among their levels, and the number of such rows.

    ``categories`` [n, C] is the result of ``fill`` for the values.
    """
    counts = {}
    for place in torch.nonzero((categories < 0).any(dim=0)).flatten().tolist():
        name = list(columns.levels)[place]
        text = _to_text(values[name])
        assert text is not None  # ``fill`` refuses other columns
        present = torch.from_numpy(text.is_not_null().to_numpy(writable=True))
        counts[name] = int(((categories[:, place] < 0) & present).sum())
    return {name: n for name, n in counts.items() if n}


def _columns(values: pl.DataFrame, table: KeyedTable) -> Columns:
    """The schema of the usable columns: those with a value."""
    numbers: list[str] = []
    levels: dict[str, tuple[str, ...]] = {}
    for name in sorted(values.columns):
        column = convert(values[name], words=name in table.words)
        if column is None or not column.count():
            continue
        if column.dtype == pl.String:
            levels[name] = levels_of(column)
        else:
            numbers.append(name)
    if not numbers and not levels:
        raise UserError(
            f"{table.name} has no column of features",
            hint=f"{listing(values.columns)} besides the keys; features are numbers or text",
        )
    return Columns(tuple(numbers), levels)


def convert(column: pl.Series, *, words: bool) -> pl.Series | None:
    """Numbers if all values are, else text; None if the column is neither.

    ``words``: never convert to numbers.
    """
    numbers = None if words else to_numbers(column)
    return _to_text(column) if numbers is None else numbers


def copies(values: pl.DataFrame) -> dict[str, str]:
    """The columns with the same values as an earlier one, and that one; missing values count."""
    earlier: dict[str, str] = {}
    first: dict[object, str] = {}
    for column in (values[name] for name in values.columns if name != LINE):
        if not column.dtype.is_nested():
            other = first.setdefault((column.dtype, column.hash().sum()), column.name)
            if other != column.name and column.equals(values[other]):
                earlier[column.name] = other
    return earlier


def doubt(column: pl.Series, places: pl.Series | None = None) -> str | None:
    """Why a column is text although nearly all of its values are numbers; None if it is not."""
    if column.dtype != pl.String:
        return None
    numbers, wrong = _parse(column)
    commas = wrong & column.str.strip_chars().str.contains(_DECIMAL_COMMA).fill_null(value=False)
    n_nearly = numbers.count() + int(commas.sum())
    if n_nearly <= _DOUBTFUL_SHARE * (numbers.count() + int(wrong.sum())):
        return None
    first = commas if commas.any() else wrong
    if (place := first.arg_max()) is not None and first[place]:
        where = "" if places is None else f" ({places[place]})"
        why = f"{column[place]!r}{where} is not a number"
        if commas.any():
            return f"{why}: write decimals with a point, or use --decimal ,"
        words = column.filter(wrong).str.strip_chars().unique()
        is_word = len(words) == 1 and words[0].isalpha()
        return f"{why}: --missing {words[0]} reads it as missing" if is_word else why
    fractions = numbers.filter(numbers.is_finite()) % 1 != 0  # codes are whole numbers
    return "its numbers are text" if fractions.any() else None


def too_large(column: pl.Series) -> pl.Series:
    """Which numbers are infinite or beyond the range of Float32."""
    numbers = _parse(column)[0] if column.dtype in TEXT_TYPES else column
    return numbers.cast(pl.Float32).is_infinite()


def holds_dates(words: pl.Series) -> bool:
    """Whether all words are dates, such as 2024-01-31 or 2024-01-31T12:00:00."""
    known = words.drop_nulls()
    some = known.head(_FEW_ROWS)
    if len(some) == 0 or not some.str.contains(_DATE).all():
        return False
    return times_of(known.to_frame("date"), "date", "the table").null_count() == 0


def levels_of(words: pl.Series) -> tuple[str, ...]:
    """The distinct words, ascending."""
    return tuple(words.drop_nulls().unique().sort())


def to_numbers(
    column: pl.Series, kind: type[pl.Float32] | type[pl.Float64] = pl.Float32
) -> pl.Series | None:
    """Finite numbers, null where missing; None if the column does not hold numbers."""
    if column.dtype in TEXT_TYPES:
        numbers, wrong = _parse(column)
        if wrong.any():
            return None
    elif column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null):
        numbers = column
    else:
        return None
    numbers = numbers.cast(kind)
    return _where(numbers.is_finite(), numbers)


def _parse(column: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Text as numbers, and which values are neither a number nor missing."""
    text = column.cast(pl.String).str.strip_chars().str.to_lowercase()
    numbers = text.replace(_BOOLEANS).cast(pl.Float64, strict=False)
    wrong = numbers.is_null() & text.is_not_null() & ~text.is_in(MISSING)
    if wrong.any():  # a query costs time
        amounts = text.to_frame("text").select(plain_number(pl.col("text"))).to_series()
        numbers = numbers.fill_null(amounts.cast(pl.Float64, strict=False))
        wrong &= numbers.is_null()
    return numbers, wrong


def _to_text(column: pl.Series) -> pl.Series | None:
    """Words, null where missing; None if the column does not hold words.

    Booleans become true and false. Whole numbers are words too, even as floats: pandas stores
    integers with missing values so.
    """
    if column.dtype.is_float():
        column = _where(column.is_not_nan(), column)
        whole = column.cast(pl.Int64, strict=False)
        if not (whole.cast(column.dtype).eq_missing(column)).all():
            return None
        column = whole
    if not (column.dtype in (*TEXT_TYPES, pl.Boolean, pl.Null) or column.dtype.is_integer()):
        return None
    text = column.cast(pl.String)
    return _where(text != "", text)


def _where(good: pl.Series, values: pl.Series) -> pl.Series:
    """The values, null where ``good`` is false; it may be null only where they are."""
    return values if good.all() else pl.select(pl.when(good).then(values)).to_series()


def _numbers(values: pl.DataFrame, name: str, table: str) -> Tensor:
    """The numbers of a column; NaN where missing. Typed ones need no polars query."""
    column = _column(values, name, table)
    typed = column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null)
    numbers = column.cast(pl.Float32) if typed else to_numbers(column)
    if numbers is None:
        raise _wrong_type(values, name, table, "numbers")
    return torch.from_numpy(numbers.to_numpy(writable=True))


def _places(values: pl.DataFrame, name: str, levels: Sequence[str], table: str) -> Tensor:
    words = _to_text(_column(values, name, table))
    if words is None:
        raise _wrong_type(values, name, table, "text")
    if values[name].dtype not in TEXT_TYPES:  # plain spellings of a file's levels: True, 3.0
        plain = (x.lower() if x.lower() in _BOOLEANS else x.removesuffix(".0") for x in levels)
        other = {word: x for word, x in zip(plain, levels, strict=True) if word != x}
        words = words.replace({word: other[word] for word in other.keys() - set(levels)})
    if len(words) <= _FEW_ROWS:
        return torch.tensor([place_of(levels, word) for word in words], dtype=torch.int32)
    return Vocabulary.of(pl.Series(levels, dtype=pl.String)).find(words).to(torch.int32)


def place_of(levels: Sequence[str], word: Any) -> int:
    """The place of a word among the levels, which ascend; -1 if it is missing or unknown."""
    place = bisect_left(levels, word) if word else len(levels)
    return place if place < len(levels) and levels[place] == word else -1


def _column(values: pl.DataFrame, name: str, table: str) -> pl.Series:
    if name not in values.columns:
        raise UserError(
            f"{table} has no column {name!r}, which the model was fitted with",
            hint=f"{listing(values.columns)} besides the keys; its values may be empty",
        )
    return values[name]


def _wrong_type(values: pl.DataFrame, name: str, table: str, wanted: str) -> UserError:
    """For a column of another type or, if it is text, with values that are not numbers."""
    column = values[name]
    content = str(column.dtype)
    hint = "the columns must have the types that the model was fitted with"
    if column.dtype in TEXT_TYPES:
        wrong = _parse(column)[1]
        place, n = wrong.arg_max(), int(wrong.sum())
        assert place is not None  # else the column would be numbers
        where = f" ({values[LINE][place]})" if LINE in values.columns else ""
        content = f"{column[place]!r}{where}"
        if n < len(column):
            rows = "this row" if n == 1 else f"it and {pluralize(n - 1, 'similar row')}"
            hint = f"correct {rows}, or leave the value empty"
    return UserError(
        f"column {name!r} of {table} holds {content}, but the model was fitted with {wanted}",
        hint=hint,
    )
