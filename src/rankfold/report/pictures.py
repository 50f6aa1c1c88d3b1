"""Pictures as SVG files: the charts of a diagnosis, and the path of a spectral fit."""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from rankfold.report import scales
from rankfold.report.chart import DASHES, RING, Look, Point, Series, look, picture
from rankfold.tasks.diagnose.result import Chart

_LEVEL = Look("ink", "5 4")  # a horizontal line to compare with
_CHOSEN = Look("ink", mark=RING)
_MIN_TICK_DISTANCE = 0.06  # as a share of the axis
_PATH_SETTINGS = ("query_exponent", "candidate_exponent", "rank", "threshold", "discount")


def diagnosis_svg(chart: Chart) -> str:
    """The picture of a chart; the y axis starts at 0 unless that hides the differences."""
    series = [
        Series(line.name, look(i), [Point(*xy) for xy in line.points], line.style == "line")
        for i, line in enumerate(chart.lines)
    ]
    points = [point for one in series for point in one.points]
    x = _scale(chart.x, [point.x for point in points], log="x" in chart.log)
    heights = [point.y for point in points] + [level.value for level in chart.levels]
    heights += [end for point in points for end in point[2:] if end is not None]
    y = _scale(chart.y, chart.ends or heights, log="y" in chart.log)
    ends = (x.ticks[0][0], x.ticks[-1][0])
    levels = [Series(name, _LEVEL, [Point(x, value) for x in ends]) for name, value in chart.levels]
    return picture(chart.title, x, y, [*series, *levels])


def _scale(label: str, values: Sequence[float], *, log: bool) -> scales.Scale:
    if log:
        return scales.logarithmic(f"{label} (log scale)", values)
    return scales.linear(label, scales.with_zero(values))


def path_svg(path: Sequence[Mapping[str, Any]], chosen: Mapping[str, Any], metric: str) -> str:
    """Validation score by rank: a colour per pair of exponents, a dash per threshold.

    The lines are at the discount at which the ranks were scored, each rank with its best weight of
    the tail. A ring marks the chosen point.

    Args:
        path: the entries of ``notes["path"]``.
        chosen: the selected settings.
        metric: the name of the score.
    """
    discounts = [entry["discount"] for entry in path]
    discount = max(discounts, key=discounts.count)
    shown = [entry for entry in path if entry["discount"] == discount]
    pairs = list(dict.fromkeys(map(_exponents, shown)))
    thresholds = list(dict.fromkeys(entry["threshold"] for entry in shown))
    series = []
    for (i, pair), (j, threshold) in product(enumerate(pairs), enumerate(thresholds)):
        scores: dict[int, float] = {}  # by rank
        for entry in shown:
            if _exponents(entry) == pair and entry["threshold"] == threshold:
                rank, score = entry["rank"], entry["score"]
                scores[rank] = max(score, scores.get(rank, score))
        style = look(i)._replace(dash=DASHES[j % len(DASHES)])
        plain = " (plain)" if pair == (-0.5, 0.0) else ""
        name = f"exponents {pair[0]:g}, {pair[1]:g}{plain}, threshold {threshold:g}"
        series.append(Series(name, style, [Point(*place) for place in sorted(scores.items())]))
    for entry in path:
        if _settings(entry) == _settings(chosen):
            tail = f", tail weight {_tail(entry):g}" if _tail(entry) else ""
            name = f"chosen: {entry['score']:.4f} with discount {entry['discount']:g}{tail}"
            point = Point(entry["rank"], entry["score"])
            series.append(Series(name, _CHOSEN, [point], joined=False))
    x = _rank_scale(sorted({entry["rank"] for entry in path}))
    y = scales.linear(metric, [point.y for one in series for point in one.points])
    title = f"{metric} on the validation sample by rank, popularity discount {discount:g}"
    return picture(title, x, y, series)


def _settings(entry: Mapping[str, Any]) -> list[float]:
    return [*(entry[name] for name in _PATH_SETTINGS), _tail(entry)]


def _tail(entry: Mapping[str, Any]) -> float:
    return entry.get("tail_weight") or 0.0


def _exponents(entry: Mapping[str, Any]) -> tuple[float, float]:
    return entry["query_exponent"], entry["candidate_exponent"]


def _rank_scale(ranks: Sequence[int]) -> scales.Scale:
    """A log scale from the first to the last rank, with the labels that have room."""
    first, span = math.log(ranks[0]), math.log(ranks[-1] / ranks[0]) or 1.0

    def share(rank: float) -> float:
        return 0.05 + 0.9 * (math.log(rank) - first) / span

    ticks: list[tuple[float, str]] = []
    for rank in ranks[::-1]:
        if not ticks or share(ticks[-1][0]) - share(rank) >= _MIN_TICK_DISTANCE:
            ticks.append((rank, str(rank)))
    return scales.Scale("rank (log scale)", ticks[::-1], share)
