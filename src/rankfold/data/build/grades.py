"""Grades as numbers in their order, 0 the lowest.

The order is the one given, else that of the input, else numeric order. Text has no order of its
own: it is never sorted alphabetically.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankfold.data.build import features
from rankfold.data.read.bad_rows import BadRows
from rankfold.data.read.columns import listing
from rankfold.data.read.reading import LINE
from rankfold.data.read.results import RawRows
from rankfold.data.read.values import TEXT_TYPES
from rankfold.errors import UserError

_MAX_GRADES = 100
_GRADE_TYPES = (*TEXT_TYPES, pl.Boolean, pl.Null, pl.Binary, pl.Date, pl.Datetime, pl.Time)
VALUES_SHOWN = 12  # in a message


@dataclass(frozen=True, slots=True)
class GradedRows:
    """Rows with their grades as numbers."""

    rows: RawRows
    grades: NDArray[np.int64]  # [n], places in ``names``
    names: tuple[str, ...]  # lowest first


def order_grades(rows: RawRows, given: Sequence[Any] | None, bad: BadRows) -> GradedRows:
    """The rows with their grades as numbers; rows without a known grade are recorded and dropped.

    The order is the one ``given``, else that of the input, else numeric order.
    """
    if rows.grades is None:
        names = [name for name in rows.table.columns if name != LINE]
        default = f"{listing(names)}; use --grade-column NAME" if names else "it has no columns"
        raise UserError(
            f"cannot tell where the grades of {rows.name} are", hint=rows.grade_hint or default
        )
    wanted = None if given is None else [str(name).strip() for name in given]
    words = as_words(rows.grades, _own_order(rows) if wanted is None else wanted)
    order = _order(rows, words, wanted)
    numbers = to_numbers(words, order)
    missing, places = words.is_null(), rows.table[LINE]
    bad.add_rows("a missing grade", places.filter(missing))
    unknown = ~missing & pl.Series(numbers < 0)
    bad.add_rows("a grade that is not among those given", places.filter(unknown))
    return GradedRows(rows.take(numbers >= 0), numbers[numbers >= 0], tuple(order))


def as_words(grades: pl.Series, given: Sequence[str] | None) -> pl.Series:
    """The grades as text, null where missing; if all are numbers, 1 and 1.0 are the same.

    Whole numbers keep all their digits; a Float64 has 15.
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
    """The grades as written; a UserError for other types."""
    kind = str(grades.dtype)
    if grades.dtype.is_numeric() or grades.dtype in _GRADE_TYPES:
        try:
            return grades.cast(pl.String).str.strip_chars()
        except pl.exceptions.PolarsError:
            kind = "bytes that are not text"
    elif grades.dtype == pl.Object:
        kind = next((type(value).__name__ for value in grades if value is not None), kind)
    raise UserError(
        f"the grades in {grades.name!r} are {kind}",
        hint="expected numbers, text or dates; is it the right column?",
    )


def _digits(text: pl.Series) -> pl.Series:
    """Exact whole numbers, also with zeros after a point; null for other text."""
    return text.str.replace(r"\.0*$", "").cast(pl.Int128, strict=False)


def canonical(names: Sequence[str]) -> Sequence[str]:
    """Names in one spelling if all are numbers, else as they are."""
    column = pl.Series(names, dtype=pl.String)
    numbers = features.to_numbers(column, pl.Float64)
    return names if numbers is None or numbers.null_count() else as_words(column, None).to_list()


def _order(rows: RawRows, words: pl.Series, given: Sequence[str] | None) -> Sequence[str]:
    assert rows.grades is not None
    present = words.drop_nulls().unique()
    if given is not None:
        names = canonical(given)
        _check_given(names, present.sort(), rows.name)
    elif (own := _own_order(rows)) is not None:
        names = [name for name in canonical(own) if name in present]
    else:
        numbers = features.to_numbers(present, pl.Float64)
        if numbers is None:
            values = _some(present.sort().to_list(), ",")
            raise UserError(
                f"the grades of {rows.name} are text, which has no natural order: {values}",
                hint="list them all: --grades LOWEST,...,HIGHEST",
            )
        keys = pl.DataFrame([numbers.alias("number"), _digits(present).alias("digits")])
        names = present.gather(
            keys.select(pl.arg_sort_by("number", "digits")).to_series()
        ).to_list()
    if len(names) < 2:
        problem = f"one grade only: {names[0]!r}" if names else "no grade in any row"
        raise UserError(f"{rows.name} has {problem}", hint="at least two grades are needed")
    if len(names) > _MAX_GRADES:
        raise UserError(
            f"the grades of {rows.name} have {len(names):,} different values",
            hint=f"at most {_MAX_GRADES} can be used; is it the right column?",
        )
    return names


def _own_order(rows: RawRows) -> Sequence[str] | None:
    """The order of the input: that of a KEEL file or of a column of type Enum."""
    if rows.grades is not None and isinstance(rows.grades.dtype, pl.Enum):
        return rows.grades.dtype.categories.to_list()
    return rows.order


def _check_given(names: Sequence[str], present: pl.Series, table: str) -> None:
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise UserError(f"the grade {twice[0]!r} is given twice", hint="name each grade once")
    unknown = [name for name in names if name not in present]
    if unknown:
        raise UserError(
            f"no row of {table} has the grade {unknown[0]!r}",
            hint=f"its grades are {_some(present.to_list(), ', ')}",
        )


def _some(values: Sequence[str], mark: str) -> str:
    return mark.join([*values[:VALUES_SHOWN], *(["..."] if len(values) > VALUES_SHOWN else [])])


def to_numbers(words: pl.Series, names: Sequence[str]) -> NDArray[np.int64]:
    """The place of each word among the names, -1 if it is none of them."""
    places = words.replace_strict(
        list(names), list(range(len(names))), default=-1, return_dtype=pl.Int64
    )
    return places.fill_null(-1).to_numpy(writable=True)
