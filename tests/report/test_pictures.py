"""Pictures of diagnoses and paths: points are in place, every line is in the legend."""

import math
from xml.etree import ElementTree

import pytest

from rankfold.report.chart import RING
from rankfold.report.pictures import diagnosis_svg, path_svg
from rankfold.tasks.diagnose.result import Chart, Level, Line

SVG = "{http://www.w3.org/2000/svg}"


def drawn(chart: Chart) -> ElementTree.Element:
    return ElementTree.fromstring(diagnosis_svg(chart))


def polylines(root: ElementTree.Element) -> dict[str, ElementTree.Element]:
    """The lines of the chart by name, without those of the legend."""
    groups = {group.findtext(f"{SVG}title"): group for group in root.iter(f"{SVG}g")}
    return {
        name: line
        for name, group in groups.items()
        if name and (line := group.find(f"{SVG}polyline")) is not None
    }


def test_points_are_where_the_axes_say() -> None:
    line = Line("a < b", [(0, 0.0), (5, 1.0), (10, 0.25)])
    root = drawn(Chart("Title", "steps", "p", [line], [Level("half", 0.5)]))
    line = polylines(root)["a < b"]
    (x0, y0), (x1, y1), (x2, y2) = (
        map(float, point.split(",")) for point in line.get("points", "").split()
    )
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert (y0 - y2) / (y0 - y1) == pytest.approx(0.25, abs=0.01)  # y counts downwards
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert {"Title", "steps", "p", "a < b", "half", "0", "10", "1"} <= set(words)
    half = [point.split(",")[1] for point in polylines(root)["half"].get("points", "").split()]
    assert list(map(float, half)) == pytest.approx([(y0 + y1) / 2] * 2, abs=0.1)


def test_lines_differ_without_colours() -> None:
    lines = [Line(str(i), [(0, i), (1, i + 1)]) for i in range(6)]
    drawn_lines = polylines(drawn(Chart("t", "x", "y", lines)))
    assert len({line.get("stroke-dasharray") for line in drawn_lines.values()}) == 6


def test_the_last_tick_is_drawn() -> None:
    chart = Chart("t", "x", "y", [Line("a", [(0.0, 0.5), (0.3, 0.9)])])
    assert {"0.3", "0.25"} <= {text.text for text in drawn(chart).iter(f"{SVG}text")}


def test_given_axis_ends_are_kept() -> None:
    root = drawn(Chart("t", "x", "p", [Line("a", [(0, 0.01), (1, 0.02)])], ends=(0.0, 1.0)))
    line = polylines(root)["a"]
    y0, y1 = (float(point.split(",")[1]) for point in line.get("points", "").split())
    assert 1.5 < y0 - y1 < 4  # a hundredth of the height
    assert "1" in [text.text for text in root.iter(f"{SVG}text")]


def test_dots_are_not_joined() -> None:
    points = [(float(i), 0.5) for i in range(30)]
    root = drawn(Chart("t", "x", "y", [Line("p", points, "dots")]))
    assert not list(root.iter(f"{SVG}polyline"))
    assert len(list(root.iter(f"{SVG}path"))) == 31  # one in the legend


@pytest.mark.parametrize(
    "points", [[], [(1.0, 2.0)], [(0.0, 0.0), (1.0, 0.0)], [(0.0, math.nan), (1.0, 3.0)]]
)
def test_few_points_are_drawn(points: list[tuple[float, float]]) -> None:
    svg = diagnosis_svg(Chart("t", "x", "y", [Line("a", points)]))
    assert "nan" not in svg
    ElementTree.fromstring(svg)


def entry(
    e: float, beta: float, rank: int, threshold: float, discount: float, score: float
) -> dict:
    return {
        "query_exponent": e,
        "candidate_exponent": beta,
        "rank": rank,
        "threshold": threshold,
        "discount": discount,
        "score": score,
        "error": 0.01,
    }


def test_every_line_and_the_chosen_point_are_drawn() -> None:
    path = [
        entry(e, beta, rank, threshold, 0.2, score=0.1 + 0.01 * rank + beta - 0.1 * threshold)
        for e, beta in ((-0.5, 0.0), (-0.375, 0.35))
        for rank in (4, 8)
        for threshold in (0.0, 0.5)
    ]
    kept = entry(-0.375, 0.35, 8, 0.0, 0.1, score=0.6)
    root = ElementTree.fromstring(path_svg([*path, kept], kept, "ndcg@10"))
    by_name = polylines(root)
    assert "exponents -0.5, 0 (plain), threshold 0.5" in by_name
    lines = [line.get("points", "").split() for line in by_name.values()]
    assert [len(line) for line in lines] == [2] * 4
    xs = [[float(point.split(",")[0]) for point in line] for line in lines]
    assert all(x[0] < x[1] for x in xs)
    heights = [float(line[1].split(",")[1]) for line in lines]
    assert heights[2] == min(heights)  # the best score is highest: y counts downwards
    rings = [mark for mark in root.iter(f"{SVG}path") if mark.get("d") == RING]
    legend, ring = sorted(float(r.get("transform", "").split()[1].strip(")")) for r in rings)
    assert (legend, ring < heights[2]) == (7, True)
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert "chosen: 0.6000 with discount 0.1" in texts
    assert {"4", "8", "rank (log scale)"} <= set(texts)


def test_a_rank_is_drawn_at_its_best_weight_of_the_tail() -> None:
    path = [entry(-0.5, 0.0, rank, 0.0, 0.2, score=0.1 * rank) for rank in (1, 2)]
    path += [{**path[1], "tail_weight": weight, "score": 0.1 * weight} for weight in (1.0, 4.0)]
    root = ElementTree.fromstring(path_svg(path, path[3], "ndcg@10"))
    (line,) = (line.get("points", "").split() for line in polylines(root).values())
    assert len(line) == 2
    rings = [mark for mark in root.iter(f"{SVG}path") if mark.get("d") == RING]
    assert len(rings) == 2  # in the chart and in the legend
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert "chosen: 0.4000 with discount 0.2, tail weight 4" in texts


def test_equal_scores_are_drawn() -> None:
    path = [entry(-0.5, 0.0, rank, 0.0, 0.2, score=0.0) for rank in (1, 2)]
    assert "nan" not in path_svg(path, path[0], "ndcg@10")
