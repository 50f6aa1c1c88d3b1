"""Rows of a request are read as a table of them is."""

import math

import polars as pl
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from linear_grades import COLUMNS

from rankfold.data.build.new_rows import read_records, read_rows
from rankfold.errors import UserError

EDGE = 2.0**128 - 2.0**103  # float32 is infinite from here on
LARGEST = math.nextafter(EDGE, 0)
NUMBERS = st.none() | st.floats(-LARGEST, LARGEST) | st.integers(-(2**63), 2**63)
WORDS = st.none() | st.sampled_from(["a", "b", "", "A", "c", "é"]) | st.text(max_size=3)
ROWS = st.lists(
    st.fixed_dictionaries({}, optional={"age": NUMBERS, "dose": NUMBERS, "site": WORDS}),
    min_size=1,
    max_size=6,
)


@given(ROWS)
@example([{"age": LARGEST, "dose": -LARGEST}, {"age": math.nan, "dose": 1e-46}])
def test_rows_are_read_as_a_table_is(rows: list[dict[str, object]]) -> None:
    table = pl.DataFrame(
        {
            "age": [None if row.get("age") is None else float(row["age"]) for row in rows],  # type: ignore[arg-type]
            "dose": [None if row.get("dose") is None else float(row["dose"]) for row in rows],  # type: ignore[arg-type]
            "site": [row.get("site") for row in rows],
        },
        schema={"age": pl.Float64, "dose": pl.Float64, "site": pl.String},
    )
    expected = read_rows(table, COLUMNS).rows
    actual = read_records(rows, COLUMNS).rows  # type: ignore[arg-type]
    assert torch.equal(actual.numbers.nan_to_num(math.pi), expected.numbers.nan_to_num(math.pi))
    assert actual.numbers.dtype == expected.numbers.dtype
    assert torch.equal(actual.categories, expected.categories)
    assert actual.categories.dtype == expected.categories.dtype
    assert torch.equal(actual.grades, expected.grades)


@pytest.mark.parametrize("value", [EDGE, -EDGE, 1e308, math.inf])
def test_a_number_that_is_too_large_is_refused(value: float) -> None:
    with pytest.raises(UserError, match=r"row 1: 'dose' must be between -3.4e\+38 and 3.4e\+38"):
        read_records([{"age": 1}, {"dose": value}], COLUMNS)
