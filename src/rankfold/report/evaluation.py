"""How well a model grades, as one self-contained HTML file: what people decide with.

``evaluation.html.jinja`` is the page; this module computes its charts. Importing this needs the
extra ``report``.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rankfold import storage
from rankfold.metrics.binomial import interval
from rankfold.report import chart, page, scales
from rankfold.report.chart import Figure, Look, Point, Series
from rankfold.report.formats import is_known
from rankfold.report.scales import Scale

CONFIDENCE = 0.95  # of the intervals of shares
_COLUMNS = 15  # in the lists of columns
_EQUAL = Look("ink", "5 4")  # a line to compare with
Result = Mapping[str, Any]  # as ``GradedEvaluation.to_json`` gives it


def write(result: Result, title: str, path: Path) -> None:
    """Write the report atomically."""
    storage.write_text(path, render(result, title))


def render(result: Result, title: str) -> str:
    """The page as HTML; ``title`` names the model and the data."""
    return page.render("evaluation.html.jinja", values(result, title))


def values(result: Result, title: str) -> dict[str, Any]:
    """The variables of the page."""
    importance = result.get("importance") or {"columns": {}}
    columns = list(importance["columns"].items())[:_COLUMNS]
    drift = sorted(result.get("drift", ()), key=lambda column: -column["psi"])[:_COLUMNS]
    return {
        "result": result,
        "title": title,
        "thresholds": [f"{grade} or more" for grade in result["grades"][1:]],
        "reliability": _reliability(result),
        "costs": _costs(result),
        "importance": [(name, value, _bar(value, columns[0][1])) for name, value in columns],
        "gain": importance.get("gain"),
        "more_columns": len(importance["columns"]) - len(columns),
        "drift": drift,
        "more_drift": len(result.get("drift", ())) - len(drift),
    }


def _reliability(result: Result) -> Figure | None:
    """The share of rows that have a grade or more, by its probability; None without any."""
    series = []
    for place, bins in enumerate(result.get("calibration", ())):
        points = [_point(one) for one in bins if is_known(one.get("probability"))]
        if points:
            name = f"{result['grades'][place + 1]} or more"
            series.append(Series(name, chart.look(place), points))
    if not series:
        return None
    highest = max(max(p.x, p.high or p.y) for one in series for p in one.points)
    equal = Series("probability = share", _EQUAL, [Point(0, 0), Point(highest, highest)])
    x = scales.linear("probability by the model", [0, highest])
    y = scales.linear("share of rows", [0, highest])
    caption = (
        "Rows in ten parts by probability, with 95% intervals of their shares. Marks on the dashed "
        "line: the probabilities are right."
    )
    return _figure("reliability diagram", caption, x, y, [*series, equal])


def _point(one: Mapping[str, float]) -> Point:
    """A part of the rows: its mean probability, and its share with the interval."""
    n = int(one["rows"])
    ends = interval(round(one["share"] * n), n, CONFIDENCE) or (None, None)
    return Point(one["probability"], one["share"], *ends)


def _costs(result: Result) -> Figure | None:
    """The cost of the model's decisions beside that of the better constant rule."""
    series = []
    for place, curve in enumerate(result.get("cost_curves", ())):
        points = [
            Point(one["miss_share"], one["cost"] / lowest)
            for one in curve
            if (lowest := min(one["none"], one["all"])) > 0
        ]
        if points:
            name = f"{result['grades'][place + 1]} or more"
            series.append(Series(name, chart.look(place), points))
    if not series:
        return None
    useless = Series("no model", _EQUAL, [Point(0.0, 1.0), Point(1.0, 1.0)])
    x = scales.linear("cost of a miss / (a miss + a false alarm)", [0.0, 1.0])
    y = scales.linear("cost, relative to no model", [0.0, 1.0, *_heights(series)])
    caption = (
        "Mean cost per row if rows pass where that is cheaper, divided by the cost of letting all "
        "rows pass or none, whichever is cheaper. Lower is better; at 1 the model saves nothing."
    )
    return _figure("cost curve", caption, x, y, [*series, useless])


def _heights(series: Sequence[Series]) -> list[float]:
    return [point.y for one in series for point in one.points if math.isfinite(point.y)]


def _figure(title: str, caption: str, x: Scale, y: Scale, series: Sequence[Series]) -> Figure:
    last = "; ".join(f"{one.name} ends at {one.points[-1].y:.4g}" for one in series)
    return Figure(caption, chart.draw(title, f"{y.label} by {x.label}; {last}", x, y, series))


def _bar(value: float, largest: float) -> str:
    """A bar for the cell of a table."""
    width = 96 * max(0.0, value / largest) if largest > 0 else 0.0
    return (
        '<svg class="interval m0" viewBox="0 0 96 14" aria-hidden="true">'
        f'<rect y="3" width="{width:.1f}" height="8" fill="currentColor"/></svg>'
    )
