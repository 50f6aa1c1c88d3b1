"""The picture of a chart: every point is where it belongs, and all is named."""

import math
from xml.etree import ElementTree

import pytest

from rankfold.report.curves import curves_svg, ticks
from rankfold.tasks.diagnose.finding import Chart, Level, Line

SVG = "{http://www.w3.org/2000/svg}"


def drawn(chart: Chart) -> ElementTree.Element:
    return ElementTree.fromstring(curves_svg(chart))


def test_points_stand_where_the_axes_say() -> None:
    line = Line("a < b", [(0, 0.0), (5, 1.0), (10, 0.25)])
    root = drawn(Chart("Title", "steps", "p", [line], [Level("half", 0.5)]))
    (found,) = root.iter(f"{SVG}polyline")
    (x0, y0), (x1, y1), (x2, y2) = (
        map(float, point.split(",")) for point in found.get("points", "").split()
    )
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert (y0 - y2) / (y0 - y1) == pytest.approx(0.25, abs=0.01)  # y counts downwards
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert {"Title", "steps", "p", "a < b", "half", "0", "10", "1"} <= set(words)
    heights = {float(part.get("y1", "")) for part in root.iter(f"{SVG}line")}
    assert any(height == pytest.approx((y0 + y1) / 2, abs=0.1) for height in heights)


def test_lines_differ_without_colours_too() -> None:
    lines = [Line(str(i), [(0, i), (1, i + 1)]) for i in range(6)]
    found = list(drawn(Chart("t", "x", "y", lines)).iter(f"{SVG}polyline"))
    assert len({line.get("stroke-dasharray") for line in found}) == 6
    assert len({line.get("stroke") for line in found}) == 6


def test_the_last_tick_is_there() -> None:
    chart = Chart("t", "x", "y", [Line("a", [(0.0, 0.5), (0.3, 0.9)])])
    assert {"0.3", "0.25"} <= {text.text for text in drawn(chart).iter(f"{SVG}text")}


def test_ends_that_are_given_are_kept() -> None:
    root = drawn(Chart("t", "x", "p", [Line("a", [(0, 0.01), (1, 0.02)])], ends=(0.0, 1.0)))
    (found,) = root.iter(f"{SVG}polyline")
    y0, y1 = (float(point.split(",")[1]) for point in found.get("points", "").split())
    assert 2 < y0 - y1 < 4  # a hundredth of the height
    assert "1" in [text.text for text in root.iter(f"{SVG}text")]


def test_dots_are_not_joined() -> None:
    points = [(float(i), 0.5) for i in range(30)]
    root = drawn(Chart("t", "x", "y", [Line("p", points, "dots")]))
    assert not list(root.iter(f"{SVG}polyline"))
    assert len(list(root.iter(f"{SVG}circle"))) == 31  # one in the legend


@pytest.mark.parametrize(
    "points", [[], [(1.0, 2.0)], [(0.0, 0.0), (1.0, 0.0)], [(0.0, math.nan), (1.0, 3.0)]]
)
def test_little_to_draw_is_drawn_too(points: list[tuple[float, float]]) -> None:
    svg = curves_svg(Chart("t", "x", "y", [Line("a", points)]))
    assert "nan" not in svg
    ElementTree.fromstring(svg)


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
def test_ticks_are_round_and_hold_all(values: list[float], expected: list[float]) -> None:
    assert ticks(values) == pytest.approx(expected)
