"""Rows given as mappings from column to value: as a table of them is read, but in microseconds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from math import nan
from typing import Any

import polars as pl
import torch

from rankfold.data.build.new_rows import NewRows
from rankfold.errors import UserError
from rankfold.types import Columns, Graded

Value = str | int | float | bool | None
Record = Mapping[str, Value]
SHOWN_COLUMNS = 20  # of the known ones, in a hint


def are_records(source: Any) -> bool:
    """Whether this is a list of mappings, and not a table or a path."""
    return isinstance(source, list | tuple) and all(isinstance(row, Mapping) for row in source)


def read_records(records: Sequence[Record], columns: Columns) -> NewRows:
    """Rows by the columns of a model. A missing column, null and an unknown level count as missing.

    A column that the model does not know, or a value of the wrong type, is a UserError.
    """
    check_records(records, columns)
    values = [[_number(row.get(name)) for name in columns.numbers] for row in records]
    shape = (len(records), len(columns.numbers))
    numbers = torch.tensor(values, dtype=torch.float64).reshape(shape).float()
    numbers[numbers.isinf()] = torch.nan  # too large for float32
    places = [
        [_place(levels, row.get(name)) for name, levels in columns.levels.items()]
        for row in records
    ]
    shape = (len(records), len(columns.levels))
    categories = torch.tensor(places, dtype=torch.int32).reshape(shape)
    rows = Graded(numbers, categories, None, torch.full((len(records),), -1))
    return NewRows(rows, pl.int_range(len(records), eager=True), _unknown(records, columns, places))


def check_records(records: Sequence[Record], columns: Columns) -> None:
    """A UserError for the first value that the model cannot take."""
    numbers = set(columns.numbers)
    for place, row in enumerate(records):
        for name, value in row.items():
            if name not in numbers and name not in columns.levels:
                known = ", ".join([*columns.numbers, *columns.levels][:SHOWN_COLUMNS])
                raise UserError(f"row {place}: unknown column {name!r}", hint=f"known: {known}")
            if value is not None and isinstance(value, str) == (name in numbers):
                wanted = "a number" if name in numbers else "a text"
                raise UserError(
                    f"row {place}: {name!r} must be {wanted}, got {value!r:.100}",
                    hint="null is a missing value",
                )


def _number(value: Any) -> float:
    return nan if value is None else float(value)


def _place(levels: Sequence[str], word: Any) -> int:
    """The place of a word among the levels, which ascend; -1 if it is missing or unknown."""
    if not word:
        return -1
    place = bisect_left(levels, word)
    return place if place < len(levels) and levels[place] == word else -1


def _unknown(
    records: Sequence[Record], columns: Columns, places: Sequence[Sequence[int]]
) -> dict[str, int]:
    """How many values of each column are not levels of the model."""
    counts = {
        name: sum(
            bool(row.get(name)) and found[place] < 0
            for row, found in zip(records, places, strict=True)
        )
        for place, name in enumerate(columns.levels)
    }
    return {name: n for name, n in counts.items() if n}
