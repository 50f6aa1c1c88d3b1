"""Grades, times and keys of any type and spelling."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pair_tables import read

from rankfold.data.read.columns import PairColumns
from rankfold.data.read.reading import Reading
from rankfold.data.read.tables import read_frame
from rankfold.errors import UserError


@pytest.mark.parametrize(
    ("text", "grade"),
    [
        ("1", 1.0), ("-2.5", -2.5), ("+3", 3.0), ("1e3", 1000.0), (".5", 0.5), ("5.", 5.0),
        ("0", 0.0), ("-0", 0.0), ("1e-50", 0.0), ("16777217", 16777216.0),
    ],
)  # fmt: skip
def test_numbers_are_read_as_grades(
    text: str, grade: float, tmp_path: Path, reading: Reading
) -> None:
    (tmp_path / "t.csv").write_text(f"user,item,rating\na,b,{text}\n")
    assert read(tmp_path / "t.csv", reading) == [("a", "b", grade)]


@pytest.mark.parametrize(
    "text", ["x", "1 2", "1_0", "0x1", "-nan", "inf", "-Infinity", "1e39", "--1"]
)
def test_other_texts_are_not_grades(text: str, tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "t.csv").write_text(f"user,item,rating\na,b,{text}\n")
    assert read(tmp_path / "t.csv", reading) == []
    assert reading.bad.counts == {"a grade that is not a number": 1}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1577934245", 1577934245.0),
        (" 1577934245.5 ", 1577934245.5),
        ("2020-01-02", 1577923200.0),
        ("2020-01-02 03:04", 1577934240.0),
        ("2020-01-02 03:04:05", 1577934245.0),
        ("2020-01-02T03:04:05.25", 1577934245.25),
        ("2020-01-02T03:04:05Z", 1577934245.0),
        (" 2020-01-02T03:04:05.5+00:00 ", 1577934245.5),
        ("2020-01-02 05:04:05+02:00", 1577934245.0),
        ("1969-12-31", -86400.0),
    ],
)
def test_times_are_seconds_since_1970(
    text: str, seconds: float, tmp_path: Path, reading: Reading
) -> None:
    (tmp_path / "t.csv").write_text(f"user,item,time\na,b,{text}\n")
    assert read(tmp_path / "t.csv", reading, time="time") == [("a", "b", seconds)]


def test_other_texts_are_not_times(tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "t.csv").write_text("user,item,time\na,b,2020-13-01\na,b,soon\na,b,\na,b,nan\n")
    assert read(tmp_path / "t.csv", reading, time="time") == []
    assert reading.bad.counts == {
        "a time that is neither a number nor a date": 2,
        "a missing time": 2,
    }


@pytest.mark.parametrize(
    ("column", "keys"),
    [
        (pl.Series([3, -1], dtype=pl.Int8), [3, -1]),
        (pl.Series([3, 2**32 - 1], dtype=pl.UInt32), [3, 2**32 - 1]),
        (pl.Series([3, 2**64 - 1], dtype=pl.UInt64), ["3", str(2**64 - 1)]),
        (pl.Series([3, -(10**30)], dtype=pl.Int128), ["3", str(-(10**30))]),
        (pl.Series([3.0, 2.5]), ["3", "2.5"]),
        (pl.Series([True, False]), ["true", "false"]),
        (pl.Series(["a", "b"], dtype=pl.Categorical), ["a", "b"]),
        (pl.Series(["a", "b"], dtype=pl.Enum(["b", "a"])), ["a", "b"]),
        (pl.Series(["2020-01-02", "2020-01-03"]).str.to_date(), ["2020-01-02", "2020-01-03"]),
        (pl.Series(["07", " 7"]), ["07", " 7"]),
    ],
    ids=lambda value: str(value.dtype) if isinstance(value, pl.Series) else "",
)
def test_keys_of_any_type_become_integers_or_text(
    column: pl.Series, keys: list[Any], reading: Reading
) -> None:
    frame = pl.LazyFrame({"user": column, "item": ["x", "y"]})
    rows = read_frame(frame, PairColumns(), "t", reading).collect().rows()
    assert [key for key, _ in rows] == keys


@pytest.mark.parametrize(
    "column",
    [
        pl.Series([None, 5]),
        pl.Series(["", "5"]),
        pl.Series([float("nan"), 5.0]),
        pl.Series([float("inf"), 5.0]),
    ],
    ids=lambda column: str(column.to_list()[0]),
)
def test_null_key_is_missing(column: pl.Series, reading: Reading) -> None:
    frame = pl.LazyFrame({"user": column, "item": ["x", "y"]})
    assert read_frame(frame, PairColumns(), "t", reading).collect().height == 1
    assert reading.bad.describe() == ["1 row with a missing query (t:1)"]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"user": [[1]]}, "column 'user' of t holds List"),
        ({"user": [b"a"]}, "column 'user' of t holds Binary"),
        ({"user": [{"a": 1}]}, "column 'user' of t holds Struct"),
        ({"rating": [[1]]}, "column 'rating' of t holds List"),
        ({"time": [[1]]}, "column 'time' of t holds List"),
        ({"time": [True]}, "column 'time' of t holds Boolean"),
    ],
)
def test_unsupported_type_is_refused(
    column: dict[str, Any], message: str, reading: Reading
) -> None:
    frame = pl.LazyFrame({"user": [1], "item": [1], **column})
    with pytest.raises(UserError) as error:
        read_frame(frame, PairColumns(), "t", reading)
    assert str(error.value).startswith(message)
    assert error.value.hint


def test_grades_and_times_of_any_type_become_numbers(reading: Reading) -> None:
    frame = pl.LazyFrame({"user": [1, 2], "item": [1, 2], "rating": [True, False]})
    dated = frame.with_columns(time=pl.datetime(1970, 1, 2, time_zone="UTC"))
    rows = read_frame(dated, PairColumns(), "t", reading).collect().rows()
    assert rows == [(1, 1, 1.0, 86400.0), (2, 2, 0.0, 86400.0)]
