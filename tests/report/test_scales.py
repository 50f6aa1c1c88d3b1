"""Scales: round ticks, and shares between 0 and 1."""

import math

import pytest

from rankfold.report.scales import categories, linear, logarithmic, round_ticks, shorten, with_zero


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 1], [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        ([0.51, 0.87], [0.5, 0.6, 0.7, 0.8, 0.9]),
        ([0, 1640], [0, 500, 1000, 1500, 2000]),
        ([-3, 3], [-3, -2, -1, 0, 1, 2, 3]),
        ([5, 5], [5, 6, 7, 8, 9, 10]),
    ],
)
def test_ticks_are_round_and_include_all(values: list[float], expected: list[float]) -> None:
    assert round_ticks(values) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.3, 2000], ["0.1", "1", "10", "100", "1,000", "10,000"]),
        ([3, 30], ["2", "5", "10", "20", "50"]),
        ([1e-3, 1e9], ["0.001", "0.1", "10", "1,000", "100,000", "10,000,000", "1,000,000,000"]),
        ([10], ["1", "10", "100"]),
        ([0.0, math.nan], ["0.1", "1", "10"]),
        ([0.0, 5.0, 20.0], ["5", "10", "20"]),
    ],
)
def test_log_ticks_are_round_and_include_all(values: list[float], expected: list[str]) -> None:
    axis = logarithmic("t", values)
    assert [label for _, label in axis.ticks] == expected
    known = [value for value in values if math.isfinite(value)]
    assert all(0 <= axis.share(value) <= 1 for value in known)
    assert axis.share(axis.ticks[-1][0]) == pytest.approx(1)


def test_a_single_value_is_in_the_middle() -> None:
    for value in (0.07, 0.0, -3.0):
        assert linear("y", [value]).share(value) == pytest.approx(0.5, abs=0.1)


def test_categories_are_side_by_side_and_long_names_are_cut() -> None:
    axis = categories("g", ["head", "a very long name of a group indeed", "tail"])
    assert [axis.share(i) for i in range(3)] == pytest.approx([1 / 6, 1 / 2, 5 / 6])
    assert axis.ticks[1][1].endswith("…")
    assert shorten("abcdefgh", 5) == "abcd…"
    assert shorten("abcde", 5) == "abcde"


def test_zero_is_included_unless_it_hides_the_differences() -> None:
    assert with_zero([1.0, 3.0]) == [0.0, 1.0, 3.0]
    assert with_zero([2.0, 3.0]) == [2.0, 3.0]
    assert with_zero([-1.0, 3.0]) == [-1.0, 3.0]
    assert with_zero([]) == []


def test_large_powers_have_short_labels() -> None:
    labels = [label for _, label in logarithmic("", [1, 1e18]).ticks]
    assert labels == ["1", "1,000", "1,000,000", "1,000,000,000", "1e12", "1e15", "1e18"]
