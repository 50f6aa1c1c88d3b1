"""Tables in memory give the same rows as files."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from prepared_splits import training_rows

from rankfold.data.prepare import prepare
from rankfold.data.read.in_memory import ACCEPTED, to_frame
from rankfold.errors import UserError

USERS, ITEMS, GRADES = ["b", "a", "b", "é"], [3, 1, 1, 2], [1.0, 2.0, 3.0, 0.5]
COLUMNS = {"user": USERS, "item": ITEMS, "rating": GRADES}


def prepared(table: Any, **options: Any) -> list[tuple[Any, Any, float]]:
    return training_rows(prepare(table, split=(1, 0, 0), **options))


EXPECTED = sorted(zip(USERS, ITEMS, GRADES, strict=True))


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(pl.DataFrame(COLUMNS), id="polars"),
        pytest.param(pl.LazyFrame(COLUMNS), id="polars, lazy"),
        pytest.param(pd.DataFrame(COLUMNS), id="pandas"),
        pytest.param(pd.DataFrame(COLUMNS, index=[9, 9, 7, 1]), id="pandas, other index"),
        pytest.param(pd.DataFrame(COLUMNS).astype({"user": "category"}), id="pandas, categories"),
        pytest.param(pa.table(COLUMNS), id="arrow"),
        pytest.param(pa.record_batch(COLUMNS), id="arrow, batch"),
        pytest.param(pa.table(COLUMNS).to_reader(max_chunksize=1), id="arrow, reader"),
        pytest.param((USERS, ITEMS, GRADES), id="lists"),
        pytest.param([np.array(USERS), np.array(ITEMS), np.array(GRADES)], id="arrays"),
        pytest.param((pd.Series(USERS), pl.Series(ITEMS), torch.tensor(GRADES)), id="mixed"),
        pytest.param(np.array([USERS, ITEMS, GRADES], dtype=object).T, id="array of objects"),
    ],
)
def test_every_kind_of_table_gives_the_same_rows(table: Any) -> None:
    assert prepared(table) == EXPECTED


def test_pandas_is_read_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pd.DataFrame(COLUMNS | {"gap": ["x", None, "y", "z"], "number": [1.5, np.nan, 2, 3]})
    table["when"] = pd.to_datetime(["2024-01-01", None, "2024-03-01", "2024-02-01"])
    expected = to_frame(table).collect()
    monkeypatch.setattr("rankfold.data.read.in_memory.find_spec", lambda _: None)
    frame = to_frame(table.astype({"user": "category"})).collect()
    assert frame.schema["user"] == pl.String  # pyarrow would give a category
    assert frame.equals(expected)


PAIRS = np.array([[5, 1], [2, 7], [5, 0]])


@pytest.mark.parametrize(
    "table", [PAIRS, torch.from_numpy(PAIRS), PAIRS.astype(float), tuple(PAIRS.T)]
)
def test_arrays_of_two_columns_are_pairs(table: Any) -> None:
    assert prepared(table) == [(2, 7, 1.0), (5, 0, 1.0), (5, 1, 1.0)]


def test_tensor_with_a_gradient_is_read() -> None:
    grades = torch.tensor([2.0, 3.0], requires_grad=True)
    assert prepared((["a", "b"], [1, 2], grades)) == [("a", 1, 2.0), ("b", 2, 3.0)]


def test_two_rows_of_an_array_are_rows() -> None:
    assert prepared(np.array([[1, 2], [3, 4]])) == [(1, 2, 1.0), (3, 4, 1.0)]


def test_columns_are_chosen_by_name() -> None:
    frame = pd.DataFrame({"a": [1, 2], "b": [3, 4], "c": [5.0, 6.0]})
    assert prepared(frame, query_column="b", candidate_column="a", grade_column="c") == [
        (3, 1, 5.0),
        (4, 2, 6.0),
    ]
    with pytest.raises(UserError, match="the table has no column 'd'"):
        prepare(frame, query_column="d")


def test_missing_values_are_bad_rows() -> None:
    frame = pd.DataFrame({"user": ["a", None, "c", "d"], "item": [1, 2, None, 4],
                          "rating": [1.0, 2.0, 3.0, np.nan]})  # fmt: skip
    data = prepare(frame, split=(1, 0, 0))
    assert training_rows(data) == [("a", 1, 1.0)]
    assert [(entry["why"], entry["first"]) for entry in data.summary["dropped"]] == [
        ("a missing query", ["the table:2"]),
        ("a missing candidate", ["the table:3"]),
        ("a missing grade", ["the table:4"]),
    ]


def test_several_tables_are_concatenated() -> None:
    one, two = pl.DataFrame({"user": [1], "item": [1]}), pd.DataFrame({"user": [2], "item": [1]})
    assert training_rows(prepare(one, two, split=(1, 0, 0))) == [(1, 1, 1.0), (2, 1, 1.0)]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (5, "cannot read a table from int"),
        ({"user": [1]}, "cannot read a table from dict"),
        (None, "cannot read a table from NoneType"),
        (([1, 2], [3]), r"cannot read pairs from arrays of shape \[\(2,\), \(1,\)\]"),
        (([1, 2],), r"cannot read pairs from arrays of shape"),
        (np.ones((2, 4)), r"cannot read pairs from arrays of shape"),
        (np.ones(3), r"cannot read pairs from arrays of shape"),
        (np.ones((2, 2, 2)), r"cannot read pairs from arrays of shape"),
        ([("a", 1), ("b", 2)], "a list of tuples is ambiguous"),
        (([[1], [2, 3]], [1, 2]), "cannot read the list: .*inhomogeneous"),
        ((np.array(["a", 1], dtype=object), [1, 2]), "cannot read the tuple"),
        (pd.DataFrame({"user": ["a", 1], "item": [1, 2]}), "cannot read the DataFrame"),
        (pd.DataFrame([[1, 2]], columns=["user", "user"]), "cannot read the DataFrame"),
        (pd.Series([1, 2]), "cannot read the Series"),
        (pl.LazyFrame({"user": ["x"], "item": [1]}).cast(pl.Int64), "cannot read the table"),
    ],
    ids=lambda value: "" if isinstance(value, str) else type(value).__name__,
)  # fmt: skip
def test_other_values_are_refused(table: Any, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        prepare(table)
    assert error.value.hint


def test_hint_lists_what_is_accepted() -> None:
    with pytest.raises(UserError) as error:
        to_frame(5)
    assert error.value.hint == f"pass {ACCEPTED}"
