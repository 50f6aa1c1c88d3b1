"""Values of columns: keys, grades and times from any type that polars reads."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from rankfold.errors import UserError

TEXT_TYPES = (pl.String, pl.Categorical, pl.Enum)
_TIME_FORMATS = ("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f%z")
_CANONICAL = r"^(0|-?[1-9][0-9]{0,18})$"


def keys_of(frame: pl.DataFrame, name: str, table: str) -> pl.Series:
    """A column as keys: Int64 or text, null where missing."""
    keys = key(pl.col(name), frame.schema[name], f"column {name!r} of {table}")
    return frame.select(keys.alias("key")).to_series()


def canonical(keys: pl.Series) -> pl.Series:
    """Keys as they are stored: Int64 if all of them are canonical integers, else text."""
    if keys.dtype == pl.String:
        numbers = keys.cast(pl.Int64, strict=False)
        if keys.str.contains(_CANONICAL).all() and numbers.null_count() == 0:
            return numbers
    return keys


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


def _number(column: pl.Expr, dtype: pl.DataType, where: str) -> pl.Expr:
    if dtype == pl.String:
        return column.str.strip_chars().cast(pl.Float64, strict=False).cast(pl.Float32)
    if not (dtype.is_numeric() or dtype in (pl.Boolean, pl.Null)):
        hint = "grades are numbers; use --grade-column none to ignore them"
        raise UserError(f"{where} holds {dtype}", hint=hint)
    return column.cast(pl.Float32)


def _seconds(column: pl.Expr, dtype: pl.DataType, where: str) -> pl.Expr:
    """Dates as seconds since 1970; numbers are kept."""
    if dtype == pl.String:
        text = column.str.strip_chars()
        date = text.str.replace("T", " ", literal=True).str.replace("Z$", "+00:00")
        types = [
            pl.Datetime("us", "UTC" if form.endswith("%z") else None) for form in _TIME_FORMATS
        ]
        formats = zip(types, _TIME_FORMATS, strict=True)
        dates = (date.str.strptime(kind, form, strict=False) for kind, form in formats)
        seconds = (date.dt.epoch("us") / 1e6 for date in dates)
        return pl.coalesce(text.cast(pl.Float64, strict=False), *seconds)
    if dtype in (pl.Date, pl.Datetime):
        return column.dt.epoch("us") / 1e6
    if not (dtype.is_numeric() or dtype == pl.Null):
        raise UserError(f"{where} holds {dtype}", hint="times are numbers or dates")
    return column.cast(pl.Float64)


CONVERTERS: dict[str, Callable[[pl.Expr, pl.DataType, str], pl.Expr]] = {
    "query": key,
    "candidate": key,
    "grade": _number,
    "time": _seconds,
}
"""By role of a column: ``(column, its type, where it is)`` to an expression of its values."""
