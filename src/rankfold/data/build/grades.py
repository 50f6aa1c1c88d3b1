"""Grades as they are written become places in an order, 0 the lowest.

The order is the one that is given, else that of the input, else that of numbers. Text has none: it
is never put in alphabetical order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankfold.data.build import features
from rankfold.data.read.files import LINE, BadRows
from rankfold.data.read.graded_rows import RawRows
from rankfold.data.read.tables import listing
from rankfold.errors import UserError

MOST_GRADES = 100
KINDS = (*features.TEXT, pl.Boolean, pl.Null, pl.Binary, pl.Date, pl.Datetime, pl.Time)
SHOWN = 12  # values in a message


@dataclass(frozen=True, slots=True)
class GradedRows:
    """Rows whose grades have an order."""

    rows: RawRows
    grades: NDArray[np.int64]  # [n], places in the names
    names: tuple[str, ...]  # lowest first


def give_grades(rows: RawRows, given: Sequence[Any] | None, bad: BadRows) -> GradedRows:
    """The rows by their grade in an order; those without one are noted, and left out.

    The order is the one that is ``given``, else that of the input, else that of numbers.
    """
    if rows.grades is None:
        names = [name for name in rows.table.columns if name != LINE]
        usual = f"{listing(names)}; use --grade-column NAME" if names else "it has none"
        raise UserError(
            f"cannot tell where the grades of {rows.name} are", hint=rows.grade_hint or usual
        )
    asked = None if given is None else [str(name).strip() for name in given]
    words = spelled(rows.grades, _own_order(rows) if asked is None else asked)
    order = _order(rows, words, asked)
    places = places_of(words, order)
    missing = words.is_null().to_numpy()
    rows.note(missing, "a missing grade", bad)
    rows.note(~missing & (places < 0), "a grade that is not among those given", bad)
    return GradedRows(rows.take(places >= 0), places[places >= 0], tuple(order))


def spelled(grades: pl.Series, given: Sequence[str] | None) -> pl.Series:
    """The grades as text, null where missing; where all are numbers, 1 and 1.0 are the same.

    Whole numbers keep all their digits, of which a Float64 would have 15.
    """
    text = _text(grades)
    numbers = features.to_numbers(grades, pl.Float64)
    if numbers is None or (given is not None and canonical(given) is given):
        return pl.select(pl.when(text != "").then(text)).to_series()
    rounded = numbers.cast(pl.Int128, strict=False)
    whole = pl.when(rounded.cast(pl.Float64) == numbers).then(rounded)
    digits = pl.coalesce(_digits(text), whole).cast(pl.String)
    return pl.select(pl.coalesce(digits, numbers.cast(pl.String))).to_series()


def _text(grades: pl.Series) -> pl.Series:
    """The grades as they are written; a UserError for what is no grade."""
    kind = str(grades.dtype)
    if grades.dtype.is_numeric() or grades.dtype in KINDS:
        try:
            return grades.cast(pl.String).str.strip_chars()
        except pl.exceptions.PolarsError:
            kind = "bytes that are no text"
    elif grades.dtype == pl.Object:
        kind = next((type(value).__name__ for value in grades if value is not None), kind)
    raise UserError(
        f"the grades in {grades.name!r} are {kind}",
        hint="they may be numbers, text or dates: write them as such, or name another column",
    )


def _digits(text: pl.Series) -> pl.Series:
    """Whole numbers, exactly, also with zeros behind a point; null where the text is none."""
    return text.str.replace(r"\.0*$", "").cast(pl.Int128, strict=False)


def canonical(names: Sequence[str]) -> Sequence[str]:
    """Names that are all numbers in one spelling; others as they are."""
    column = pl.Series(names, dtype=pl.String)
    numbers = features.to_numbers(column, pl.Float64)
    return names if numbers is None or numbers.null_count() else spelled(column, None).to_list()


def _order(rows: RawRows, words: pl.Series, given: Sequence[str] | None) -> Sequence[str]:
    assert rows.grades is not None
    there = words.drop_nulls().unique()
    if given is not None:
        names = canonical(given)
        _check_given(names, there.sort(), rows.name)
    elif (own := _own_order(rows)) is not None:
        names = [name for name in canonical(own) if name in there]
    else:
        numbers = features.to_numbers(there, pl.Float64)
        if numbers is None:
            values = _some(there.sort().to_list(), ",")
            raise UserError(
                f"the grades of {rows.name} are text, which has no order of its own: {values}",
                hint="say which is lower: --grades LOWEST,...,HIGHEST, with all of them",
            )
        keys = pl.DataFrame([numbers.alias("number"), _digits(there).alias("digits")])
        names = there.gather(keys.select(pl.arg_sort_by("number", "digits")).to_series()).to_list()
    if len(names) < 2:
        found = f"one grade only: {names[0]!r}" if names else "no grade in any row"
        raise UserError(f"{rows.name} has {found}", hint="ordered grades are two or more")
    if len(names) > MOST_GRADES:
        raise UserError(
            f"the grades of {rows.name} have {len(names):,} different values",
            hint=f"at most {MOST_GRADES} can be used; is it the right column?",
        )
    return names


def _own_order(rows: RawRows) -> Sequence[str] | None:
    """The order that comes with the input: of a KEEL file, or of a column of type Enum."""
    if rows.grades is not None and isinstance(rows.grades.dtype, pl.Enum):
        return rows.grades.dtype.categories.to_list()
    return rows.order


def _check_given(names: Sequence[str], there: pl.Series, table: str) -> None:
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise UserError(f"the grade {twice[0]!r} is given twice", hint="name each grade once")
    unknown = [name for name in names if name not in there]
    if unknown:
        raise UserError(
            f"no row of {table} has the grade {unknown[0]!r}",
            hint=f"its grades are {_some(there.to_list(), ', ')}",
        )


def _some(values: Sequence[str], mark: str) -> str:
    return mark.join([*values[:SHOWN], *(["..."] if len(values) > SHOWN else [])])


def places_of(words: pl.Series, names: Sequence[str]) -> NDArray[np.int64]:
    """The place of each word among the names, -1 where it is none of them."""
    places = words.replace_strict(
        list(names), list(range(len(names))), default=-1, return_dtype=pl.Int64
    )
    return places.fill_null(-1).to_numpy(writable=True)
