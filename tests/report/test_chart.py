"""Charts: the places of points, looks that differ without colour, readable colours."""

import math
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from rankfold.report.chart import (
    CHARACTER,
    DARK,
    HEIGHT,
    LIGHT,
    MAX_MARKS,
    MAX_NAMES,
    NAME_HEIGHT,
    WIDTH,
    Point,
    Series,
    Theme,
    draw,
    emphasis,
    interval,
    look,
    sample,
)
from rankfold.report.scales import linear, logarithmic


def luminance(colour: str) -> float:
    """The relative luminance of the WCAG."""
    shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_every_colour_is_readable(theme: Theme) -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert all(contrast(ink, theme.paper) >= 4.5 for ink in (theme.ink, *theme.series))


def test_forty_two_series_differ_in_colour_and_mark() -> None:
    assert len({(look(i).colour, look(i).mark) for i in range(42)}) == 42
    assert len({look(i).mark for i in range(6)}) == 6
    assert len({sample(i).split("polyline")[1] for i in range(6)}) == 6


def test_points_are_where_the_axes_say() -> None:
    x, y = logarithmic("s", [1.0, 100.0]), linear("p", [0.0, 1.0])
    points = [Point(1, 0.0), Point(10, 0.5, 0.25, 0.75), Point(100, 1.0), Point(math.nan, 0.3)]
    root = ElementTree.fromstring(draw("a < b", "what", x, y, [Series("m & n", look(0), points)]))
    (line,) = root.iter("polyline")
    (x0, y0), (x1, y1), (x2, y2) = (
        map(float, place.split(",")) for place in line.get("points", "").split()
    )
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)
    assert y0 > y2  # y counts downwards
    (whisker,) = (part for part in root.iter("line") if part.get("stroke-width") == "1.5")
    ends = [float(whisker.get(end, "")) for end in ("y1", "y2")]
    assert ends == pytest.approx([(y0 + y1) / 2, (y1 + y2) / 2], abs=0.2)
    assert [e.text for e in root.iter("title")] == ["a < b", "m & n"]
    assert {"s", "p", "1", "10", "100", "0.4"} <= {e.text for e in root.iter("text")}


def x_of(mark: ElementTree.Element) -> float:
    return float(mark.get("transform", "").removeprefix("translate(").split()[0])


def test_an_interval_is_between_its_ends() -> None:
    root = ElementTree.fromstring(interval(Point(0, 2.0, 1.0, 3.0), (0.0, 4.0), 0))
    line = list(root.iter("line"))[1]
    (dot,) = root.iter("path")
    places = [float(line.get("x1", "")), x_of(dot), float(line.get("x2", ""))]
    assert places == pytest.approx([24, 48, 72])


def crowd(n: int, points: int = 4) -> ElementTree.Element:
    """A chart of n series that end close to each other; the best is the first."""
    x, y = linear("x", [0.0, points]), linear("y", [0.0, 1.0])
    series = [
        Series(
            f"method {i}",
            look(i),
            [Point(float(k), 0.9 - 0.001 * i, 0.8, 0.95) for k in range(points)],
            emphasis=emphasis(i, n),
        )
        for i in range(n)
    ]
    return ElementTree.fromstring(draw("c", "", x, y, series))


def test_in_a_crowd_the_best_are_named_and_the_others_muted() -> None:
    root = crowd(15)
    names = [text.text for text in root.iter("text") if text.get("class") == "name"]
    assert names == [f"method {i}" for i in range(MAX_NAMES)]
    lines = {g.findtext("title"): g for g in root.iter("g") if g.findtext("title")}
    assert list(lines)[-1] == "method 0"  # drawn last, so above the others
    for i in range(15):
        (line,) = lines[f"method {i}"].iter("polyline")
        assert (line.get("stroke-opacity") is not None) is (i >= MAX_NAMES)
        whiskers = len(list(lines[f"method {i}"].iter("line")))
        assert whiskers == (0 if i >= MAX_NAMES else 4)
    assert "stroke-opacity" in sample(MAX_NAMES, 15)
    assert "stroke-opacity" not in sample(MAX_NAMES, 6) + sample(0, 15)


def test_a_few_series_have_names_and_none_is_muted() -> None:
    root = crowd(6)
    assert sum(text.get("class") == "name" for text in root.iter("text")) == MAX_NAMES
    assert all(line.get("stroke-opacity") is None for line in root.iter("polyline"))
    assert not [text for text in crowd(1).iter("text") if text.get("class") == "name"]


def test_names_are_inside_and_do_not_overlap() -> None:
    names = [text for text in crowd(15).iter("text") if text.get("class") == "name"]
    heights = sorted(float(name.get("y", "")) for name in names)
    assert all(b - a >= NAME_HEIGHT - 0.2 for a, b in pairwise(heights))
    assert heights[0] > 0
    assert heights[-1] < HEIGHT
    assert all(float(n.get("x", "")) + CHARACTER * len(n.text or "") <= WIDTH for n in names)


def test_a_long_line_has_few_marks_and_one_at_its_end() -> None:
    root = crowd(2, points=60)
    line = next(g for g in root.iter("g") if g.findtext("title") == "method 0")
    marks = [x_of(mark) for mark in line.iter("path")]
    assert MAX_MARKS / 2 < len(marks) <= MAX_MARKS
    places = next(line.iter("polyline")).get("points", "").split()
    assert max(marks) == float(places[-1].split(",")[0])
