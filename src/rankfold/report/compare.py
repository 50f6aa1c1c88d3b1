"""The results of ``rankfold compare`` as one HTML file that needs nothing else.

``compare.html.jinja`` is the page; here is what it shows: cells of tables, and charts. All text
that comes from data is escaped by jinja2; charts are escaped where they are drawn. Importing this
needs the extra ``report``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jinja2

from rankfold import storage
from rankfold.metrics import more_is_better
from rankfold.report import axes, figures, wording
from rankfold.report.axes import Axis
from rankfold.report.figures import Point, Series
from rankfold.report.wording import Entry, mean_of

TEMPLATE = Path(__file__).with_name("compare.html.jinja")
STEPS = 60  # points of a line that are drawn, at most
WIDE = 8.0  # the ratio of the ends of a swept setting from which its axis is logarithmic
Results = Mapping[str, Any]


class Figure(NamedTuple):
    """A chart and what is said about it; ``svg`` is markup."""

    caption: str
    svg: str


class Cell(NamedTuple):
    """A metric of a method; ``svg``, markup or empty, shows its interval."""

    mean: float
    low: float | None
    high: float | None
    best: bool
    tied: bool
    svg: str


def write(results: Results, path: Path) -> None:
    """Write the report at once: a reader sees all of it, or what was there before."""
    storage.write_text(path, render(results))


def render(results: Results) -> str:
    """The whole page."""
    page = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    page.filters |= {
        "number": wording.number,
        "signed": wording.signed,
        "chance": wording.chance,
        "duration": wording.duration,
        "size": wording.size,
        "amount": wording.amount,
        "setting": wording.setting,
        "sample": figures.sample,
        "shortened": axes.shortened,
    }
    return page.from_string(TEMPLATE.read_text(encoding="utf-8")).render(shown(results))


def shown(results: Results) -> dict[str, Any]:
    """Everything that the page names."""
    ranking = wording.ranked(results)
    return {
        "results": results,
        "light": figures.LIGHT,
        "dark": figures.DARK,
        "paper": figures.PAPER,
        "night": figures.NIGHT,
        "summary": wording.summary(results),
        "verdicts": wording.verdicts(results, tested(results)),
        "ranking": ranking,
        "failed": [entry for entry in results["methods"] if entry["error"]],
        "cells": cells(results, ranking),
        "tested": tested(results),
        "fit_seconds": wording.fit_seconds,
        "time": time_figure(results, ranking),
        "sizes": size_figure(results, ranking),
        "groups": [g for kind in GROUPED if (g := grouped(results, ranking, kind))],
        "sweep": sweep_figures(results),
        "swept": swept(results),
        "thresholds": threshold_names(results),
        "calibration": calibration_figures(results, ranking),
        "examples": example_rows(ranking),
        "facts": facts(results["data"]["summary"]),
    }


# ---------------------------------------------------------------------------------- tables


def cells(results: Results, ranking: Sequence[Entry]) -> dict[tuple[str, str], Cell]:
    """What stands in the table, by method and metric; intervals of a metric have one scale."""
    found = {}
    for metric in results["metrics"]:
        test = results["tests"].get(metric, {"best": None, "others": {}})
        best = best_by(results, ranking, metric)
        entries = [entry["metrics"].get(metric) or {} for entry in ranking]
        ends = [float(e[end]) for e in entries for end in ("low", "high") if _known(e.get(end))]
        span = min(ends, default=0.0), max(ends, default=1.0)
        for style, (entry, values) in enumerate(zip(ranking, entries, strict=True)):
            mean, low, high = mean_of(entry, metric), values.get("low"), values.get("high")
            drawn = all(map(_known, (mean, low, high)))
            svg = figures.interval(Point(0, mean, low, high), span, style) if drawn else ""
            name = entry["name"]
            tied = bool(test["others"].get(name, {}).get("tied"))
            found[name, metric] = Cell(mean, low, high, name == best, tied, svg)
    return found


def best_by(results: Results, ranking: Sequence[Entry], metric: str) -> str | None:
    """The best method by a metric; None where there is no such thing."""
    if not more_is_better(metric) or len(ranking) < 2:
        return None
    if metric in results["tests"]:
        return str(results["tests"][metric]["best"])
    known = [entry for entry in ranking if _known(mean_of(entry, metric))]
    return max(known, key=lambda entry: mean_of(entry, metric))["name"] if known else None


def tested(results: Results) -> list[str]:
    """The metrics by which methods were held against the best."""
    return [
        metric
        for metric in results["metrics"]
        if results["tests"].get(metric, {}).get("others") and more_is_better(metric)
    ]


def threshold_names(results: Results) -> list[str]:
    """What is told apart at each threshold between grades."""
    grades = results["data"].get("grades") or results["data"]["summary"].get("grade_names") or []
    return [f"{grade} or more" for grade in grades[1:]]


def example_rows(ranking: Sequence[Entry]) -> list[tuple[Mapping[str, Any], list[Any]]]:
    """Each example query, with the methods that answered it and their answers."""
    answered: dict[str, tuple[Mapping[str, Any], list[Any]]] = {}
    for entry in ranking:
        for example in entry["examples"] or []:
            _, rows = answered.setdefault(str(example["query"]), (example, []))
            rows.append((entry["name"], example))
    return list(answered.values())


def facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A summary of data, line by line: whatever it holds, nested or not."""
    found = []
    for name, value in summary.items():
        if name == "dropped":
            found += [(f"dropped: {e['why']}", wording.amount(e["rows"])) for e in value]
        elif isinstance(value, Mapping):
            found += [(f"{_label(name)}: {inner}", told) for inner, told in facts(value)]
        elif value is not None and value != []:
            found.append((_label(name), _fact(name, value)))
    return found


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
        return wording.amount(value)
    return wording.setting(value)


# ---------------------------------------------------------------------------------- charts

GROUPED = {  # what is along, and what it means
    "popularity": (
        "popularity of candidates",
        "Candidates by how often train has them, in parts of about as many pairs; only those of a "
        "part count as right.",
    ),
    "history": (
        "known pairs of a query",
        "Queries by how many of their pairs were known.",
    ),
}


class Groups(NamedTuple):
    """A metric within groups of candidates or queries."""

    kind: str  # a key of ``GROUPED``, and of a method's results
    title: str
    metric: str
    parts: Sequence[Mapping[str, Any]]
    figure: Figure


def time_figure(results: Results, ranking: Sequence[Entry]) -> Figure | None:
    """The validation score after each step against the time until then."""
    series = _series(
        (entry["name"], [Point(_float(s["seconds"]), _float(s["score"])) for s in steps])
        for entry in ranking
        for steps in (thinned(entry["steps"] or []),)
    )
    metric = results["selected_by"]
    x = axes.logarithmic("training time (s, log scale)", _xs(series))
    caption = (
        f"Validation {metric} against training time: marks are steps, further up and to the left "
        "is better. A method that is solved at once has one mark."
    )
    return _figure(f"{metric} against time", caption, x, metric, series)


def size_figure(results: Results, ranking: Sequence[Entry]) -> Figure | None:
    """The first metric against the bytes of the model."""
    metric = results["metrics"][0]
    series = _series(
        (
            entry["name"],
            [_point(_float(entry["model_bytes"]) / 1e6, entry["metrics"].get(metric) or {})],
        )
        for entry in ranking
    )
    x = axes.logarithmic("size of the model (MB, log scale)", _xs(series))
    caption = f"{results['split'].capitalize()} {metric} with 95% intervals against model size."
    return _figure(f"{metric} against size", caption, x, metric, series)


def grouped(results: Results, ranking: Sequence[Entry], kind: str) -> Groups | None:
    """The first metric that is known within groups; None without any."""
    parts: list[Mapping[str, Any]] = next((entry[kind] for entry in ranking if entry[kind]), [])
    metric = next((m for m in results["metrics"] if parts and m in parts[0]["metrics"]), None)
    if metric is None:
        return None
    label, about = GROUPED[kind]
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
    axis = axes.named(label, [str(name) for name in at])
    figure = _figure(title, about, axis, metric, series)
    return None if figure is None else Groups(kind, title, metric, parts, figure)


def sweep_figures(results: Results) -> list[Figure]:
    """Each metric against the setting that was swept, a line per method."""
    sweep = results["sweep"]
    if sweep is None:
        return []
    values, setting = [str(value) for value in sweep["values"]], sweep["setting"]
    axis, places = _swept_axis(setting, values)
    found = []
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
        caption = f"{metric} against {setting}, with 95% intervals where they are known."
        found.append(_figure(f"{metric} against {setting}", caption, axis, metric, series))
    return [figure for figure in found if figure is not None]


def swept(results: Results) -> list[str]:
    """The methods of a sweep, the one with the highest value by the first metric first."""
    methods = (results["sweep"] or {"methods": {}})["methods"]
    metric = results["metrics"][0]

    def best(name: str) -> float:
        means = [_float(of.get(metric, {}).get("mean")) for of in methods[name].values()]
        return max(filter(_known, means), default=-math.inf)

    return sorted(methods, key=lambda name: -best(name))


def calibration_figures(results: Results, ranking: Sequence[Entry]) -> list[tuple[str, Figure]]:
    """Of each grader, how many of the rows of a score truly lie above each threshold."""
    names = threshold_names(results)
    found = []
    for entry in ranking:
        series = [
            Series(
                names[place] if place < len(names) else f"threshold {place + 1}",
                place,
                [Point(_float(b["score"]), _float(b["share"])) for b in curve],
            )
            for place, curve in enumerate(entry["calibration"] or [])
        ]
        x = axes.linear("score", _xs(series))
        title = f"calibration of {entry['name']}"
        figure = _figure(title, entry["name"], x, "share of rows", series, floor=(0.0, 1.0))
        if figure is not None:
            found.append((entry["name"], figure))
    return found


def _series(named: Iterable[tuple[str, Sequence[Point]]]) -> list[Series]:
    """Series in styles by their order, the best first; also those without a point have one."""
    every = list(named)
    return [
        Series(name, style, points, emphasis=figures.emphasis(style, len(every)))
        for style, (name, points) in enumerate(every)
    ]


def thinned(steps: Sequence[Any]) -> list[Any]:
    """At most ``STEPS`` of them, evenly, with the last."""
    stride = math.ceil(len(steps) / STEPS) or 1
    return list(steps[::-1][::stride][::-1])


def _figure(
    title: str,
    caption: str,
    x: Axis,
    y_label: str,
    series: Iterable[Series],
    floor: Sequence[float] = (),
) -> Figure | None:
    """A chart of the series that have points; None without any."""
    drawn = [
        one for one in series if any(_known(point.x) and _known(point.y) for point in one.points)
    ]
    points = [point for one in drawn for point in one.points]
    heights = [v for p in points for v in (p.y, p.low, p.high) if v is not None and _known(v)]
    if not drawn:
        return None
    y = axes.linear(y_label, [*heights, *floor])
    about = f"{x.label} along, {y_label} up; " + "; ".join(map(_told, drawn))
    return Figure(caption, figures.chart(title, about, x, y, drawn))


def _told(series: Series) -> str:
    """A series for those who do not see it: where it ends."""
    last = [point for point in series.points if _known(point.x) and _known(point.y)][-1]
    return f"{series.name} {'ends' if len(series.points) > 1 else 'is'} at {last.y:.4g}"


def _swept_axis(setting: str, values: Sequence[str]) -> tuple[Axis, dict[str, float]]:
    """Numbers where they belong, by their logarithms if they span much; words side by side."""
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        return axes.named(setting, values), {v: float(i) for i, v in enumerate(values)}
    places = dict(zip(values, numbers, strict=True))
    if min(numbers) > 0 and max(numbers) / min(numbers) >= WIDE:
        axis = axes.logarithmic(f"{setting} (log scale)", numbers)
        axis = axis._replace(ticks=[(place, value) for value, place in places.items()])
        return axis, places
    return axes.linear(setting, numbers), places


def _point(x: float, values: Mapping[str, Any]) -> Point:
    return Point(x, _float(values.get("mean")), values.get("low"), values.get("high"))


def _xs(series: Iterable[Series]) -> list[float]:
    return [point.x for one in series for point in one.points]


def _float(value: Any) -> float:
    return math.nan if value is None else float(value)


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
