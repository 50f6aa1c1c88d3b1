"""Values of columns: keys, grades and times from any type that polars reads."""

from collections.abc import Sequence
from typing import TypeVar

import polars as pl

from rankfold.data.read import times
from rankfold.errors import UserError

F = TypeVar("F", pl.DataFrame, pl.LazyFrame)
TEXT_TYPES = (pl.String, pl.Categorical, pl.Enum)
MAX_ROWS = 2**32 - 2**16 if pl.get_index_type() == pl.UInt32 else 2**63  # that polars can number
_CURRENCY = r"(?:[€$£¥]|EUR|USD|GBP|CHF)"
_AMOUNT = rf"(?i)^\s*([-+]?)\s*{_CURRENCY}?\s*([-+]?[\d.,]*\d)\s*(?:%|{_CURRENCY})?\s*$"
_CANONICAL = r"^(0|-?[1-9][0-9]{0,18})$"


def check_count(frame: pl.LazyFrame, name: str) -> None:
    """A UserError for more rows than polars can number: numbering them, it panics."""
    n = count_rows(frame)
    if n > MAX_ROWS:
        raise UserError(
            f"{name} has {n:,} rows, and polars numbers at most {MAX_ROWS:,}",
            hint="pip install 'rankfold[large]' for its 64-bit version",
        )


def count_rows(frame: pl.LazyFrame) -> int:
    """The number of rows; ``pl.len()`` has as few bits as the numbers of rows."""
    missing = pl.first().is_null()
    counts = frame.select(
        pl.sum_horizontal(each.cast(pl.Int64).sum() for each in (missing, ~missing))
    )
    return int(counts.collect(engine="streaming").item())


def keys_of(frame: pl.DataFrame, name: str, table: str) -> pl.Series:
    """A column as keys: Int64 or text, null where missing."""
    keys = key(pl.col(name), frame.schema[name], f"column {name!r} of {table}")
    return frame.select(keys.alias("key")).to_series()


def times_of(frame: pl.DataFrame, name: str, table: str, form: str | None = None) -> pl.Series:
    """A column of numbers or dates as seconds since 1970, null where it is neither.

    ``form``: how they are written; None: guess.
    """
    dtype, where = frame.schema[name], f"column {name!r} of {table}"
    form = times.guess(frame.lazy(), name, form, where) if dtype in TEXT_TYPES else None
    value = seconds(pl.col(name), dtype, where, form)
    column = frame.select(value.alias("time")).to_series()
    return column.set(~column.is_finite(), None) if column.null_count() < len(column) else column


def canonical(keys: pl.Series) -> pl.Series:
    """Keys as they are stored: Int64 if all of them are canonical integers, else text."""
    if keys.dtype == pl.String:
        numbers = keys.cast(pl.Int64, strict=False)
        if keys.str.contains(_CANONICAL).all() and numbers.null_count() == 0:
            return numbers
    return keys


def check_distinct(keys: pl.Series, where: str, hint: str) -> None:
    """A UserError if a key occurs more than once: ``where`` is the beginning of its message."""
    again = keys.filter(keys.is_duplicated() & keys.is_not_null())
    if len(again):
        raise UserError(f"{where} {again[0]!r} more than once", hint=hint)


def concat(columns: Sequence[pl.Series]) -> pl.Series:
    """Columns, one after another; if their types differ, they become text."""
    mixed = len({column.dtype for column in columns}) > 1
    return pl.concat([column.cast(pl.String) if mixed else column for column in columns])


def concat_frames(frames: Sequence[F]) -> F:
    """Frames with the same columns, one after another; columns of different types become text."""
    schemas = [frame.collect_schema() for frame in frames]
    names = schemas[0].names()
    mixed = [name for name in names if len({schema[name] for schema in schemas}) > 1]
    as_text = pl.col(mixed).cast(pl.String)
    return pl.concat([frame.select(names).with_columns(as_text) for frame in frames])


def row_numbers(lines: pl.Series, all_lines: Sequence[int] | pl.Series) -> pl.Series:
    """The number of each row by its line, from 0, among all rows, including unusable ones."""
    ascending = pl.Series(all_lines, dtype=pl.Int64)
    return ascending.search_sorted(lines.cast(pl.Int64)).cast(pl.Int64)


def text_columns(frame: pl.DataFrame) -> frozenset[str]:
    """The text columns of a typed table: their values are categories, even ones like 007."""
    return frozenset(c.name for c in frame if c.dtype in TEXT_TYPES and c.count())


def key(column: pl.Expr, dtype: pl.DataType, where: str) -> pl.Expr:
    """Keys as Int64 or text, null where missing."""
    if dtype.is_nested() or dtype in (pl.Binary, pl.Object):
        raise UserError(f"{where} holds {dtype}", hint="keys are numbers or text")
    if dtype.is_float():
        whole = column.cast(pl.Int64, strict=False)
        same = whole.cast(dtype) == column
        text = pl.when(column.is_finite()).then(column.cast(pl.String))
        return pl.when(same).then(whole.cast(pl.String)).otherwise(text)
    if dtype.is_integer() and dtype not in (pl.UInt64, pl.Int128, pl.UInt128):
        return column.cast(pl.Int64)
    keys = column.cast(pl.String)
    return pl.when(keys != "").then(keys)


def number(column: pl.Expr, dtype: pl.DataType, where: str, decimal: str = ".") -> pl.Expr:
    """Grades in single precision, null where they are not numbers."""
    if dtype in TEXT_TYPES:
        text = plain_number(column.cast(pl.String).str.strip_chars(), decimal)
        return text.cast(pl.Float64, strict=False).cast(pl.Float32)
    if not (dtype.is_numeric() or dtype in (pl.Boolean, pl.Null)):
        hint = "grades are numbers; use --grade-column none to ignore them"
        raise UserError(f"{where} holds {dtype}", hint=hint)
    return column.cast(pl.Float32)


def plain_number(text: pl.Expr, decimal: str = ".") -> pl.Expr:
    """Numbers as people write them, without currency, percent sign and marks between thousands.

    ``1.234,50 €`` is ``1234.50`` if the decimal mark is a comma, ``$1,234.50`` if it is a point.
    With a point ``1,234`` stays as it is: its comma may be a decimal mark. Other text stays too.
    """
    body = text.str.replace(_AMOUNT, "${1}${2}")
    if decimal == ",":
        grouped = body.str.contains(r"^[-+]?\d{1,3}(\.\d{3})+(,\d+)?$")
        ungrouped = pl.when(grouped).then(body.str.replace_all(".", "", literal=True))
        return ungrouped.otherwise(body).str.replace(",", ".", literal=True)
    grouped = body.str.contains(r"^[-+]?\d{1,3}(,\d{3})+(\.\d+)?$")
    certain = body.str.contains(r"\.|,.*,") | text.str.contains(r"[$£]")
    return (
        pl.when(grouped & certain).then(body.str.replace_all(",", "", literal=True)).otherwise(body)
    )


def seconds(column: pl.Expr, dtype: pl.DataType, where: str, form: str | None = None) -> pl.Expr:
    """Dates as seconds since 1970; numbers are kept."""
    if dtype in TEXT_TYPES:
        return times.seconds(column.cast(pl.String), form)
    if dtype in (pl.Date, pl.Datetime):
        return column.dt.epoch("us") / 1e6
    if not (dtype.is_numeric() or dtype == pl.Null):
        raise UserError(f"{where} holds {dtype}", hint="times are numbers or dates")
    return column.cast(pl.Float64)
