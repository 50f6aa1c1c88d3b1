"""Numbers as text."""

import math

import pytest

from rankfold.report.formats import UNKNOWN, duration, number, p_value, signed, size


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 ms"),
        (0.0123, "12.3 ms"),
        (0.9999, "1 s"),
        (3.4, "3.4 s"),
        (101, "101 s"),
        (599.9, "10 min"),
        (900, "15 min"),
        (7200, "2 h"),
        (None, UNKNOWN),
        (math.nan, UNKNOWN),
    ],
)
def test_times(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1500, "1.5 kB"),
        (66e6, "66 MB"),
        (999_999, "1 MB"),
        (3e12, "3 TB"),
    ],
)
def test_sizes(count: float, words: str) -> None:
    assert size(count) == words


def test_numbers() -> None:
    assert number(0.07194) == "0.0719"
    assert signed(-0.0006) == "\N{MINUS SIGN}0.0006"
    assert [p_value(p) for p in (0.0004, 0.0123, 0.3124)] == ["p < 0.001", "p = 0.012", "p = 0.31"]
    assert number(None) == signed(math.inf) == p_value(math.nan) == UNKNOWN
