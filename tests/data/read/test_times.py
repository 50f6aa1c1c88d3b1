"""Formats of times are guessed from the values, and refused where days could be months."""

from datetime import UTC, datetime

import polars as pl
import pytest

from rankfold.data.read.times import guess, seconds
from rankfold.errors import UserError

MORNING = datetime(2024, 2, 13, 9, 5, tzinfo=UTC)
DAY = MORNING.replace(hour=0, minute=0)


@pytest.mark.parametrize(
    ("text", "form", "time"),
    [
        ("13.02.2024", "%d.%m.%Y", DAY),
        ("13/2/24", "%d/%m/%y", DAY),
        ("2/13/2024", "%m/%d/%Y", DAY),
        ("02-13-2024 9:05 AM", "%m-%d-%Y %I:%M %p", MORNING),
        ("13.02.2024 09:05", "%d.%m.%Y %H:%M", MORNING),
        ("13 Feb 2024", "%d %b %Y", DAY),
        ("February 13, 2024", "%B %d, %Y", DAY),
        ("2024/02/13 09:05", "%Y/%m/%d %H:%M", MORNING),
        ("Tue Feb 13 09:05:00 2024", "%a %b %d %H:%M:%S %Y", MORNING),
        ("20240213", "%Y%m%d", DAY),
        ("2024-02-13", None, DAY),
        ("1707814800", None, MORNING.replace(minute=0)),
    ],
)
def test_formats_are_guessed(text: str, form: str | None, time: datetime) -> None:
    frame = pl.LazyFrame({"t": [text, "", text]})
    assert guess(frame, "t", None, "column 't'") == form
    values = frame.select(seconds(pl.col("t"), form)).collect().to_series()
    assert values[0] == time.timestamp()
    assert values[1] is None


def test_one_value_decides_between_day_and_month() -> None:
    frame = pl.LazyFrame({"t": ["01/02/2024"] * 2000 + ["31/01/2024"]})
    assert guess(frame, "t", None, "column 't'") == "%d/%m/%Y"


def test_days_that_could_be_months_are_refused() -> None:
    frame = pl.LazyFrame({"t": ["01/02/2024", "03/04/2024"]})
    with pytest.raises(UserError, match="the day or the month may come first") as error:
        guess(frame, "t", None, "column 't'")
    assert "--time-format day-first" in error.value.hint
    assert guess(frame, "t", "month-first", "") == "%m/%d/%Y"
    assert guess(frame, "t", "day-first", "") == "%d/%m/%Y"


def test_a_given_format_is_used() -> None:
    frame = pl.LazyFrame({"t": ["1|2|2024"]})
    assert guess(frame, "t", "%d|%m|%Y", "") == "%d|%m|%Y"
