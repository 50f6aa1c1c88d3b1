"""Charts of a page: places, styles that differ without colour, colours that can be read."""

import math
from xml.etree import ElementTree

import pytest

from rankfold.report.figures import (
    DARK,
    LIGHT,
    MARKS,
    NIGHT,
    PAPER,
    Point,
    Series,
    chart,
    colour,
    interval,
    linear,
    logarithmic,
    mark,
    named,
    sample,
    shortened,
)


def luminance(colour: str) -> float:
    """Of the WCAG."""
    shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(
    ("ink", "ground"), [*((c, PAPER) for c in LIGHT), *((c, NIGHT) for c in DARK)]
)
def test_every_colour_can_be_read(ink: str, ground: str) -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast(ink, ground) >= 4.5


def test_forty_two_series_look_different_by_colour_and_mark() -> None:
    looks = {(colour(i), MARKS[i % len(MARKS)]) for i in range(42)}
    assert len(looks) == 42
    assert len({mark((0, 0), i) for i in range(6)}) == 6
    assert len({sample(i).split("polyline")[1] for i in range(6)}) == 6


def test_points_stand_where_the_axes_say() -> None:
    x, y = logarithmic("s", [1.0, 100.0]), linear("p", [0.0, 1.0])
    points = [Point(1, 0.0), Point(10, 0.5, 0.25, 0.75), Point(100, 1.0), Point(math.nan, 0.3)]
    root = ElementTree.fromstring(chart("a < b", "what", x, y, [Series("m & n", 0, points)]))
    (line,) = root.iter("polyline")
    (x0, y0), (x1, y1), (x2, y2) = (
        map(float, place.split(",")) for place in line.get("points", "").split()
    )
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)
    assert y0 > y2  # y counts downwards
    (whisker,) = (part for part in root.iter("line") if part.get("stroke") == "currentColor")
    ends = [float(whisker.get(end, "")) for end in ("y1", "y2")]
    assert ends == pytest.approx([(y0 + y1) / 2, (y1 + y2) / 2], abs=0.2)
    assert [e.text for e in root.iter("title")] == ["a < b", "m & n"]
    assert {"s", "p", "1", "10", "100", "0.4"} <= {e.text for e in root.iter("text")}


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
def test_log_ticks_are_round_and_hold_all(values: list[float], expected: list[str]) -> None:
    axis = logarithmic("t", values)
    assert [label for _, label in axis.ticks] == expected
    known = [value for value in values if math.isfinite(value)]
    assert all(0 <= axis.share(value) <= 1 for value in known)
    assert axis.share(axis.ticks[-1][0]) == pytest.approx(1)


def test_one_value_stands_in_the_middle() -> None:
    for value in (0.07, 0.0, -3.0):
        assert linear("y", [value]).share(value) == pytest.approx(0.5, abs=0.1)


def test_groups_stand_side_by_side_and_long_names_are_cut() -> None:
    axis = named("g", ["head", "a very long name of a group indeed", "tail"])
    assert [axis.share(i) for i in range(3)] == pytest.approx([1 / 6, 1 / 2, 5 / 6])
    assert axis.ticks[1][1].endswith("…")
    assert shortened("abcdefgh", 5) == "abcd…"
    assert shortened("abcde", 5) == "abcde"


def test_an_interval_lies_between_its_ends() -> None:
    root = ElementTree.fromstring(interval(Point(0, 2.0, 1.0, 3.0), (0.0, 4.0), 0))
    line = list(root.iter("line"))[1]
    (dot,) = root.iter("circle")
    found = [float(line.get("x1", "")), float(dot.get("cx", "")), float(line.get("x2", ""))]
    assert found == pytest.approx([24, 48, 72])
