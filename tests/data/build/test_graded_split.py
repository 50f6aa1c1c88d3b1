"""Graded rows are split by shares, by time, or by whole groups."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from rankfold.data.prepare import prepare
from rankfold.errors import UserError
from rankfold.types import Dataset, SplitName

SPLITS: tuple[SplitName, ...] = ("train", "validation", "test")


def rows(n: int = 100) -> pl.DataFrame:
    """Rows whose column ``x`` is their number in the order of time, shuffled."""
    table = pl.DataFrame(
        {
            "x": range(n),
            "when": [f"2024-{1 + i // 28:02}-{1 + i % 28:02}" for i in range(n)],
            "seconds": [1.7e9 + 3600 * i for i in range(n)],
            "customer": [f"c{i % 17}" for i in range(n)],
            "grade": [i % 2 for i in range(n)],
        }
    )
    return table.sample(fraction=1.0, shuffle=True, seed=0)


def prepared(table: Any, **options: Any) -> Dataset:
    return prepare(table, format="features", grade_column="grade", **options)


def numbers(data: Dataset, name: SplitName) -> set[float]:
    assert data.columns is not None
    return set(data.graded(name).numbers[:, data.columns.numbers.index("x")].tolist())


def test_time_divides_at_a_date() -> None:
    data = prepared(rows(), split="time:2024-03-01", time_column="when", validation_share=0.25)
    assert numbers(data, "test") == set(range(56, 100))
    assert numbers(data, "validation") == set(range(42, 56))
    assert numbers(data, "train") == set(range(42))
    why = {entry["column"]: entry["why"] for entry in data.summary["left_out"]}
    assert why["when"] == "it is the time of the rows"


def test_last_holds_out_the_latest_tenths() -> None:
    data = prepared(rows(), split="last", time_column="seconds", drop="when")
    assert numbers(data, "test") == set(range(90, 100))
    assert numbers(data, "validation") == set(range(80, 90))
    assert data.columns is not None
    assert data.columns.numbers == ("x",)


def test_rows_of_the_same_time_stay_together() -> None:
    table = rows().with_columns(seconds=pl.col("x") // 8)
    data = prepared(table, split="last", time_column="seconds", drop="when")
    eighths = [{x // 8 for x in numbers(data, name)} for name in SPLITS]
    assert not (eighths[0] & eighths[1]) | (eighths[0] & eighths[2]) | (eighths[1] & eighths[2])
    assert 12 in eighths[2]


def test_column_of_times_is_found_by_its_name() -> None:
    data = prepared(rows().rename({"seconds": "Timestamp"}), split="last", drop="when")
    assert numbers(data, "test") == set(range(90, 100))


def test_groups_stay_whole_and_are_no_feature() -> None:
    table, held = rows(340), []
    for seed in range(5):
        data = prepared(table, split="group:customer", drop="when,seconds", seed=seed)
        groups = [{x % 17 for x in numbers(data, name)} for name in SPLITS]
        assert sum(map(len, groups)) == 17
        assert set.union(*groups) == set(range(17))
        assert all(20 <= len(data.graded(name)) <= 60 for name in ("validation", "test"))
        assert data.columns is not None
        assert "customer" not in data.columns.levels
        held.append(frozenset(groups[2]))
    assert len(set(held)) > 1


def test_groups_do_not_depend_on_the_order_of_rows() -> None:
    first, second = (
        prepared(table, split="group:customer", drop="when", seed=3)
        for table in (rows(), rows()[::-1])
    )
    assert numbers(first, "test") == numbers(second, "test")


def test_rows_without_a_time_or_a_group_are_bad(tmp_path: Path) -> None:
    table = rows().with_row_index("place")
    odd = pl.when(pl.col("place") == 5).then(pl.lit("soon")).otherwise("when").alias("when")
    table.with_columns(odd).drop("place").write_csv(tmp_path / "rows.csv")
    data = prepared(tmp_path / "rows.csv", split="last", time_column="when")
    assert data.summary["dropped"] == [
        {"why": "a missing time", "rows": 1, "first": ["rows.csv:7"]}
    ]
    odd = pl.when(pl.col("place") > 1).then("customer").alias("customer")
    table.with_columns(odd).drop("place").write_csv(tmp_path / "rows.csv")
    data = prepared(tmp_path / "rows.csv", split="group:customer", drop="when")
    assert data.summary["dropped"][0]["why"] == "a missing group"
    assert data.summary["dropped"][0]["rows"] == 2


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"split": "last"}, "a split by time needs the times of the table", "--time-column NAME"),
        ({"split": "last", "time_column": "q"}, "no column 'q'", "--time-column NAME"),
        ({"split": "group:q"}, "no column 'q'", "--split group:NAME"),
        ({"split": "group:"}, "cannot be split by 'group:'", "group:COLUMN"),
        ({"split": "queries:0.8,0.1,0.1"}, "cannot be split by 'queries:", "group:COLUMN"),
        ({"split": "time:soon", "time_column": "when"}, "cannot read the time 'soon'", "time:T"),
        ({"split": "time:1990-01-01", "time_column": "when"}, "leaves train empty", "between"),
        ({"split": "group:grade2"}, "cannot split 2 groups", "shares"),
    ],
)
def test_splits_that_cannot_be_made(options: dict[str, Any], message: str, hint: str) -> None:
    table = rows().with_columns(grade2=pl.col("grade")).rename({"seconds": "s"})
    with pytest.raises(UserError, match=message) as caught:
        prepared(table, **options)
    assert hint in str(caught.value.hint)


def test_arrays_have_no_times_and_groups() -> None:
    arrays = {"X": np.zeros((9, 1)), "y": np.arange(9) % 2}
    for split, message in (("last", "no column of times"), ("group:a", "no column 'a'")):
        with pytest.raises(UserError, match=message):
            prepare(arrays, format="features", split=split)


def test_grades_that_train_lacks_are_refused() -> None:
    table = rows().with_columns(grade=(pl.col("x") > 90).cast(pl.Int64))
    with pytest.raises(UserError, match="no row of the grade '1' is in train"):
        prepared(table, split="last", time_column="seconds")
