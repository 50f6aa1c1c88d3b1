"""The results of ``rankfold compare`` as one self-contained HTML file.

``compare.html.jinja`` is the page; this module computes its tables and charts. Importing this needs
the extra ``report``.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rankfold import storage
from rankfold.metrics import more_is_better
from rankfold.report import chart, formats, page, scales
from rankfold.report import summary as summaries
from rankfold.report.chart import Figure, Point, Series
from rankfold.report.formats import is_known
from rankfold.report.published import published_figures
from rankfold.report.scales import Scale
from rankfold.report.summary import Entry, mean_of

MAX_STEPS = 60  # points of a line
_MIN_LOG_RATIO = 8.0  # of the ends of a swept setting, for a log scale
Results = Mapping[str, Any]


class Cell(NamedTuple):
    """A metric of a method; ``svg`` is markup that shows its interval, or empty."""

    mean: float
    low: float | None
    high: float | None
    best: bool
    tied: bool
    svg: str


def write(results: Results, path: Path) -> None:
    """Write the report atomically: a reader sees all of it or the file before."""
    storage.write_text(path, render(results))


def render(results: Results) -> str:
    """The page as HTML."""
    return page.render("compare.html.jinja", values(results))


def values(results: Results) -> dict[str, Any]:
    """The variables of the page."""
    ranking = summaries.ranked(results)
    return {
        "results": results,
        "summary": summaries.summary(results),
        "verdicts": summaries.verdicts(results, tested(results)),
        "ranking": ranking,
        "failed": [entry for entry in results["methods"] if entry["error"]],
        "cells": cells(results, ranking),
        "published": published_figures(results),
        "tested": tested(results),
        "fit_seconds": summaries.fit_seconds,
        "cost": [f for draw in COST_FIGURES if (f := draw(results, ranking))],
        "groups": [g for kind in GROUPINGS if (g := grouped(results, ranking, kind))],
        "sweep": _sweep_figures(results),
        "swept": swept(results),
        "thresholds": threshold_names(results),
        "calibration": _calibration_figures(results, ranking),
        "examples": example_rows(ranking),
        "facts": facts(results["data"]["summary"]),
    }


# ---------------------------------------------------------------------------------- tables


def cells(results: Results, ranking: Sequence[Entry]) -> dict[tuple[str, str], Cell]:
    """The cells of the table by method and metric; the intervals of a metric share one scale."""
    table = {}
    for metric in results["metrics"]:
        test = results["tests"].get(metric, {"best": None, "others": {}})
        best = best_by(results, ranking, metric)
        entries = [entry["metrics"].get(metric) or {} for entry in ranking]
        ends = [float(e[end]) for e in entries for end in ("low", "high") if is_known(e.get(end))]
        span = min(ends, default=0.0), max(ends, default=1.0)
        for style, (entry, values) in enumerate(zip(ranking, entries, strict=True)):
            mean, low, high = mean_of(entry, metric), values.get("low"), values.get("high")
            drawn = all(map(is_known, (mean, low, high)))
            svg = chart.interval(Point(0, mean, low, high), span, style) if drawn else ""
            name = entry["name"]
            tied = bool(test["others"].get(name, {}).get("tied"))
            table[name, metric] = Cell(mean, low, high, name == best, tied, svg)
    return table


def best_by(results: Results, ranking: Sequence[Entry], metric: str) -> str | None:
    """The best method by a metric; None for one method or an unordered metric."""
    if not more_is_better(metric) or len(ranking) < 2:
        return None
    if metric in results["tests"]:
        return str(results["tests"][metric]["best"])
    known = [entry for entry in ranking if is_known(mean_of(entry, metric))]
    return max(known, key=lambda entry: mean_of(entry, metric))["name"] if known else None


def tested(results: Results) -> list[str]:
    """The metrics with a test of each method against the best."""
    return [
        metric
        for metric in results["metrics"]
        if results["tests"].get(metric, {}).get("others") and more_is_better(metric)
    ]


def threshold_names(results: Results) -> list[str]:
    """The name of each threshold between grades."""
    grades = results["data"].get("grades") or results["data"]["summary"].get("grade_names") or []
    return [f"{grade} or more" for grade in grades[1:]]


def example_rows(ranking: Sequence[Entry]) -> list[tuple[Mapping[str, Any], list[Any]]]:
    """Each example query with the results of each method."""
    answered: dict[str, tuple[Mapping[str, Any], list[Any]]] = {}
    for entry in ranking:
        for example in entry["examples"] or []:
            _, rows = answered.setdefault(str(example["query"]), (example, []))
            rows.append((entry["name"], example))
    return list(answered.values())


def facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The lines of a data summary, with nested ones flattened."""
    lines = []
    for name, value in summary.items():
        if name == "dropped":
            lines += [(f"dropped: {e['why']}", formats.count(e["rows"])) for e in value]
        elif isinstance(value, Mapping):
            lines += [(f"{_label(name)}: {inner}", text) for inner, text in facts(value)]
        elif value is not None and value != []:
            lines.append((_label(name), _fact(name, value)))
    return lines


def _label(name: str) -> str:
    return "rows read" if name == "rows" else name.replace("_", " ")


def _fact(name: str, value: Any) -> str:
    if name == "density":
        return f"{value:.3%}"
    if isinstance(value, list | tuple):
        return "; ".join(_fact("", one) for one in value)
    if isinstance(value, Mapping):
        return ", ".join(_fact(key, one) for key, one in value.items())
    if isinstance(value, int) and not isinstance(value, bool):
        return formats.count(value)
    return formats.setting(value)


# ---------------------------------------------------------------------------------- charts

GROUPINGS = {  # the label of the axis, and the caption
    "popularity": (
        "popularity of candidates",
        "Candidates are grouped by their number of training pairs; each group has about the same "
        "total. Only candidates of the group count as correct.",
    ),
    "history": (
        "training pairs of a query",
        "Queries are grouped by their number of training pairs.",
    ),
}


class Groups(NamedTuple):
    """A metric within groups of candidates or queries."""

    kind: str  # a key of ``GROUPINGS`` and of a method's results
    title: str
    metric: str
    parts: Sequence[Mapping[str, Any]]
    figure: Figure


def _time_figure(results: Results, ranking: Sequence[Entry]) -> Figure | None:
    """The validation score after each step by training time."""
    series = _series(
        (entry["name"], [Point(_float(s["seconds"]), _float(s["score"])) for s in steps])
        for entry in ranking
        for steps in (thin(entry["steps"] or []),)
    )
    metric = results["selected_by"]
    x = scales.logarithmic("training time (s, log scale)", _xs(series))
    caption = (
        f"Validation {metric} by training time. Each mark is a step; higher and farther left is "
        "better. A closed-form method has one mark, rg2 one for each decomposition."
    )
    return _figure(f"{metric} by training time", caption, x, metric, series)


def _size_figure(results: Results, ranking: Sequence[Entry]) -> Figure | None:
    """The first metric by the size of the model."""
    metric = results["metrics"][0]
    series = _series(
        (
            entry["name"],
            [_point(_float(entry["model_bytes"]) / 1e6, entry["metrics"].get(metric) or {})],
        )
        for entry in ranking
    )
    x = scales.logarithmic("model size (MB, log scale)", _xs(series))
    caption = f"{results['split'].capitalize()} {metric} by model size, with 95% intervals."
    return _figure(f"{metric} by model size", caption, x, metric, series)


COST_FIGURES = (_time_figure, _size_figure)


def grouped(results: Results, ranking: Sequence[Entry], kind: str) -> Groups | None:
    """The first metric that has values by group; None without one."""
    parts: list[Mapping[str, Any]] = next((entry[kind] for entry in ranking if entry[kind]), [])
    metric = next((m for m in results["metrics"] if parts and m in parts[0]["metrics"]), None)
    if metric is None:
        return None
    label, caption = GROUPINGS[kind]
    at = {part["name"]: float(place) for place, part in enumerate(parts)}
    series = _series(
        (
            entry["name"],
            [
                Point(at.get(part["name"], math.nan), _float(part["metrics"].get(metric)))
                for part in entry[kind]
            ],
        )
        for entry in ranking
    )
    title = f"{metric} by {label}"
    axis = scales.categories(label, [str(name) for name in at])
    figure = _figure(title, caption, axis, metric, series)
    return None if figure is None else Groups(kind, title, metric, parts, figure)


def _sweep_figures(results: Results) -> list[Figure]:
    """Each metric by the swept setting, one line per method."""
    sweep = results["sweep"]
    if sweep is None:
        return []
    values, setting = [str(value) for value in sweep["values"]], sweep["setting"]
    axis, places = _sweep_scale(setting, values)
    charts = []
    for metric in results["metrics"]:
        series = _series(
            (
                name,
                [
                    _point(places[value], of[value][metric])
                    for value in values
                    if value in of and metric in of[value]
                ],
            )
            for name in swept(results)
            for of in (sweep["methods"][name],)
        )
        caption = f"{metric} by {setting}, with 95% intervals where available."
        charts.append(_figure(f"{metric} by {setting}", caption, axis, metric, series))
    return [figure for figure in charts if figure is not None]


def swept(results: Results) -> list[str]:
    """The methods of a sweep, sorted by their highest value of the first metric."""
    methods = (results["sweep"] or {"methods": {}})["methods"]
    metric = results["metrics"][0]

    def best(name: str) -> float:
        means = [_float(of.get(metric, {}).get("mean")) for of in methods[name].values()]
        return max(filter(is_known, means), default=-math.inf)

    return sorted(methods, key=lambda name: -best(name))


def _calibration_figures(results: Results, ranking: Sequence[Entry]) -> list[tuple[str, Figure]]:
    """For each grader, the share of rows above each threshold by score."""
    names = threshold_names(results)
    charts = []
    for entry in ranking:
        series = [
            Series(
                names[place] if place < len(names) else f"threshold {place + 1}",
                chart.look(place),
                [Point(_float(b["score"]), _float(b["share"])) for b in curve],
            )
            for place, curve in enumerate(entry["calibration"] or [])
        ]
        x = scales.linear("score", _xs(series))
        title = f"calibration of {entry['name']}"
        figure = _figure(title, entry["name"], x, "share of rows", series, floor=(0.0, 1.0))
        if figure is not None:
            charts.append((entry["name"], figure))
    return charts


def _series(named: Iterable[tuple[str, Sequence[Point]]]) -> list[Series]:
    """Series with looks by their order, the best first; one without points also takes a look."""
    every = list(named)
    return [
        Series(name, chart.look(rank), points, emphasis=chart.emphasis(rank, len(every)))
        for rank, (name, points) in enumerate(every)
    ]


def thin(steps: Sequence[Any]) -> list[Any]:
    """At most ``MAX_STEPS`` of the steps, evenly spaced, with the last one."""
    stride = math.ceil(len(steps) / MAX_STEPS) or 1
    return list(steps[::-1][::stride][::-1])


def _figure(
    title: str,
    caption: str,
    x: Scale,
    y_label: str,
    series: Iterable[Series],
    floor: Sequence[float] = (),
) -> Figure | None:
    """A chart of the series with points; None without any."""
    drawn = [
        one
        for one in series
        if any(is_known(point.x) and is_known(point.y) for point in one.points)
    ]
    points = [point for one in drawn for point in one.points]
    heights = [v for p in points for v in (p.y, p.low, p.high) if v is not None and is_known(v)]
    if not drawn:
        return None
    y = scales.linear(y_label, [*heights, *floor])
    description = f"{y_label} by {x.label}; " + "; ".join(map(_describe, drawn))
    return Figure(caption, chart.draw(title, description, x, y, drawn))


def _describe(series: Series) -> str:
    """The last value of a series, for screen readers."""
    last = [point for point in series.points if is_known(point.x) and is_known(point.y)][-1]
    return f"{series.name} {'ends' if len(series.points) > 1 else 'is'} at {last.y:.4g}"


def _sweep_scale(setting: str, values: Sequence[str]) -> tuple[Scale, dict[str, float]]:
    """A log scale for numbers of a wide range, a linear one for others; categories for words."""
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        return scales.categories(setting, values), {v: float(i) for i, v in enumerate(values)}
    places = dict(zip(values, numbers, strict=True))
    if min(numbers) > 0 and max(numbers) / min(numbers) >= _MIN_LOG_RATIO:
        axis = scales.logarithmic(f"{setting} (log scale)", numbers)
        axis = axis._replace(ticks=[(place, value) for value, place in places.items()])
        return axis, places
    return scales.linear(setting, numbers), places


def _point(x: float, values: Mapping[str, Any]) -> Point:
    return Point(x, _float(values.get("mean")), values.get("low"), values.get("high"))


def _xs(series: Iterable[Series]) -> list[float]:
    return [point.x for one in series for point in one.points]


def _float(value: Any) -> float:
    return math.nan if value is None else float(value)
