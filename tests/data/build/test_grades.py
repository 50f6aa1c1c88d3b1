"""Grades in their order."""

from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest
from graded_samples import GRADES, prepared

from rankfold.data.build.grades import as_words
from rankfold.data.build.new_rows import read_rows
from rankfold.data.prepare import prepare
from rankfold.errors import UserError
from rankfold.types import Columns


@pytest.mark.parametrize("values", [[2, 10, 1], ["2", "10", "1"], [2.0, 10.0, 1.0]], ids=str)
def test_numbers_ascend(values: list[Any]) -> None:
    data = prepare(
        pl.DataFrame({"x": range(30), "y": values * 10}), format="features", grade_column="y"
    )
    assert data.summary["grade_names"] == ["1", "2", "10"]
    train = data.graded("train")
    expected = [[1, 2, 0][int(x) % 3] for x in train.numbers[:, 0]]
    assert train.grades.tolist() == expected


def test_numbers_may_be_given_an_order_in_any_spelling() -> None:
    table = pl.DataFrame({"x": range(30), "y": ["1.0", "2", "3"] * 10})
    data = prepare(table, format="features", grade_column="y", grades=[3, 2, 1])
    assert data.summary["grade_names"] == ["3", "2", "1"]
    assert data.graded("train").grades.tolist() == [
        2 - int(x) % 3 for x in data.graded("train").numbers[:, 0]
    ]


def test_an_enum_has_an_order(patients: pl.DataFrame) -> None:
    rows = patients.with_columns(pl.col("severity").cast(pl.Enum(["none", *GRADES])))
    assert prepared(rows, grades=None).summary["grade_names"] == GRADES


def test_categories_of_pandas_have_no_order(patients: pl.DataFrame) -> None:
    rows = patients.to_pandas()
    rows["severity"] = pd.Categorical(rows["severity"])
    with pytest.raises(UserError, match="no natural order"):
        prepared(rows, grades=None)


def test_rows_without_a_grade_are_counted(patients: pl.DataFrame, tmp_path: Path) -> None:
    rows = patients.with_columns(
        severity=pl.when(pl.col("id") == "p3")
        .then(pl.lit("odd"))
        .when(pl.col("id") == "p4")
        .then(None)
        .otherwise(pl.col("severity"))
    )
    rows.write_csv(tmp_path / "rows.csv")
    data = prepared(tmp_path / "rows.csv")
    assert len(data.queries) == 28
    assert data.summary["rows"] == 30
    assert data.summary["dropped"] == [
        {"why": "a missing grade", "rows": 1, "first": ["rows.csv:6"]},
        {"why": "a grade that is not among those given", "rows": 1, "first": ["rows.csv:5"]},
    ]
    with pytest.raises(UserError, match=r"rows.csv:6"):
        prepared(tmp_path / "rows.csv", strict=True)


@pytest.mark.parametrize("kind", ["as they are", "text"])
@pytest.mark.parametrize(
    "values",
    [
        pl.Series([20240103, 20240104, 20240105]),
        pl.Series([16777216, 16777217, 16777218]),
        pl.Series([2**63, 2**63 + 1, 2**63 + 2], dtype=pl.UInt64),
        pl.Series([-(2**62) - 1, -(2**62), 2**53, 2**53 + 1]),
        pl.Series([2.5, 3.4e38, 3.5e38, 1e39]),
    ],
    ids=["days", "2^24", "2^63", "2^53 and -2^62", "beyond float32"],
)
def test_large_and_close_grades_ascend(values: pl.Series, kind: str) -> None:
    n = len(values)
    for shift in range(n):
        column = values.gather([(i + shift) % n for i in range(n - 1, -1, -1)] * 20)
        table = pl.DataFrame(
            {"x": range(20 * n), "y": column.cast(pl.String) if kind == "text" else column}
        )
        names = prepare(table, format="features", grade_column="y").summary["grade_names"]
        assert list(map(float, names)) == sorted(map(float, values))
        if values.dtype.is_integer():
            assert list(map(int, names)) == values.to_list()
        new = read_rows(table, Columns(("x",), {}), grade_column="y", grades=names).rows
        assert new.grades.tolist() == [names.index(name) for name in as_words(column, None)]


def test_large_grades_may_be_given_an_order() -> None:
    table = pl.DataFrame({"x": range(30), "y": [2.0, 1e39, 2**63 + 2**20] * 10})
    data = prepare(table, format="features", grade_column="y", grades=["1e39", 2**63 + 2**20, "2"])
    assert data.summary["grade_names"] == ["1e+39", "9223372036855824384", "2"]


def test_whole_numbers_with_decimal_zeros_are_the_same_grades() -> None:
    words = ["9007199254740993", "9007199254740993.0", "9007199254740992.", "2"]
    table = pl.DataFrame({"x": range(40), "y": words * 10})
    names = prepare(table, format="features", grade_column="y").summary["grade_names"]
    assert names == ["2", "9007199254740992", "9007199254740993"]
