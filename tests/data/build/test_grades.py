"""Grades in their order."""

from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest
from graded_samples import GRADES, prepared

from rankfold.data.prepare import prepare
from rankfold.errors import UserError


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
    with pytest.raises(UserError, match="no order"):
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
