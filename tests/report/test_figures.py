"""Charts of a page: places, styles that differ without colour, colours that can be read."""

import math
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from rankfold.report.axes import CHARACTER, WIDTH, linear, logarithmic, named, shortened
from rankfold.report.figures import (
    DARK,
    GAP,
    HEIGHT,
    LIGHT,
    MARKED,
    MARKS,
    NAMED,
    NIGHT,
    PAPER,
    Point,
    Series,
    chart,
    colour,
    emphasis,
    interval,
    mark,
    sample,
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


def crowd(n: int, points: int = 4) -> ElementTree.Element:
    """The chart of so many series that end close to each other, the best of style 0."""
    x, y = linear("x", [0.0, points]), linear("y", [0.0, 1.0])
    series = [
        Series(
            f"method {i}",
            i,
            [Point(float(k), 0.9 - 0.001 * i, 0.8, 0.95) for k in range(points)],
            emphasis=emphasis(i, n),
        )
        for i in range(n)
    ]
    return ElementTree.fromstring(chart("c", "", x, y, series))


def test_of_many_the_best_are_named_and_the_others_stand_back() -> None:
    root = crowd(15)
    names = [text.text for text in root.iter("text") if text.get("class") == "name"]
    assert names == [f"method {i}" for i in range(NAMED)]
    lines = {g.findtext("title"): g for g in root.iter("g") if g.findtext("title")}
    assert list(lines)[-1] == "method 0"  # drawn last, so above the others
    for i in range(15):
        (line,) = lines[f"method {i}"].iter("polyline")
        assert (line.get("stroke-opacity") is not None) is (i >= NAMED)
        whiskers = len(list(lines[f"method {i}"].iter("line")))
        assert whiskers == (0 if i >= NAMED else 4)
    assert "stroke-opacity" in sample(NAMED, 15)
    assert "stroke-opacity" not in sample(NAMED, 6) + sample(0, 15)


def test_few_have_their_names_and_none_is_muted() -> None:
    root = crowd(6)
    assert sum(text.get("class") == "name" for text in root.iter("text")) == NAMED
    assert all(line.get("stroke-opacity") is None for line in root.iter("polyline"))
    assert not [text for text in crowd(1).iter("text") if text.get("class") == "name"]


def test_names_stand_inside_and_never_on_each_other() -> None:
    names = [text for text in crowd(15).iter("text") if text.get("class") == "name"]
    heights = sorted(float(name.get("y", "")) for name in names)
    assert all(b - a >= GAP - 0.2 for a, b in pairwise(heights))
    assert heights[0] > 0
    assert heights[-1] < HEIGHT
    assert all(float(n.get("x", "")) + CHARACTER * len(n.text or "") <= WIDTH for n in names)


def test_a_long_line_has_few_marks_and_one_at_its_end() -> None:
    root = crowd(2, points=60)
    line = next(g for g in root.iter("g") if g.findtext("title") == "method 0")
    marks = [float(circle.get("cx", "")) for circle in line.iter("circle")]
    assert MARKED / 2 < len(marks) <= MARKED
    places = next(line.iter("polyline")).get("points", "").split()
    assert max(marks) == float(places[-1].split(",")[0])
