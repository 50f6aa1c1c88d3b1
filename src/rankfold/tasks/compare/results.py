"""The results of a comparison as a JSON document and a table; docs/reference/results.md."""

import os
import platform
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from rankfold import storage
from rankfold.errors import UserError
from rankfold.metrics import more_is_better
from rankfold.metrics.graded import parse_graded
from rankfold.models.grader import names_of
from rankfold.tasks import significance
from rankfold.tasks.compare.plan import ComparePlan, command_of
from rankfold.tasks.compare.published import published
from rankfold.tasks.compare.records import Outcome
from rankfold.tasks.significance import Floats
from rankfold.types import Tabular

_FORMAT = 1
_SIGNIFICANCE = 0.05  # a method is tied with the best unless its p is below
_COLUMNS = {
    **dict.fromkeys(("name", "method", "metric"), pl.String()),
    **dict.fromkeys(("mean", "low", "high"), pl.Float64()),
    **dict.fromkeys(("seeds", "error"), pl.String()),
}
_N_WITH_EXAMPLES = 2  # the best methods keep their examples


class Comparison(dict[str, Any], Tabular):
    """The document of a comparison."""

    def to_polars(self) -> pl.DataFrame:
        """One row per method and metric; one row for a failed method."""
        rows: list[dict[str, Any]] = []
        for method in self["methods"]:
            first = {"name": method["name"], "method": method["method"]}
            if method["error"] is not None:
                rows.append({**first, "error": method["error"]["message"]})
            for metric, value in method["metrics"].items():
                seeds = " ".join(map(str, value["seeds"]))
                rows.append({**first, "metric": metric, **value, "seeds": seeds})
        return pl.DataFrame(rows, schema=_COLUMNS)


def assemble(plan: ComparePlan, outcomes: Sequence[Outcome]) -> Comparison:
    """The document that ``docs/reference/results.md`` describes."""
    done = [outcome for outcome in outcomes if outcome.error is None]
    graded = plan.data.kind == "graded"
    intervals, tests = _test_graders(plan, done) if graded else _test_rankers(plan, done)
    methods = [_method(plan, outcome, intervals) for outcome in outcomes]
    good = [method for method in methods if method["error"] is None]
    good.sort(key=lambda method: -method["metrics"][plan.metrics[0]]["mean"])
    for method in good[_N_WITH_EXAMPLES:]:
        method["examples"] = None
    return Comparison(
        {
            "format": _FORMAT,
            "data": {
                "name": plan.data_name,
                "kind": plan.data.kind,
                "fingerprint": plan.data.fingerprint,
                "summary": dict(plan.data.summary),
                "grades": names_of(plan.data.candidates) if graded else None,
            },
            "split": "test",
            "queries": done[0].records[0]["queries"] if done else None,
            "selected_by": plan.selected_by,
            "metrics": list(plan.metrics),
            "budget": {"trials": plan.options.trials, "seconds": plan.seconds},
            "seeds": list(range(plan.options.seeds)),
            "refit": plan.refits,
            "width": _common_width(outcomes),
            "patience": plan.options.patience,
            "versions": storage.versions(),
            "machine": _machine(),
            "command": command_of(plan),
            "methods": methods,
            "tests": tests,
            "sweep": _tabulate_sweep(plan, methods),
            "protocol": plan.options.protocol,
            "published": published(plan.options.protocol, plan.data.summary, plan.metrics),
        }
    )


# ---------------------------------------------------------------------------------- methods


Intervals = Mapping[tuple[str, str], tuple[float, float] | None]  # by entry's name and metric


def _method(plan: ComparePlan, outcome: Outcome, intervals: Intervals) -> dict[str, Any]:
    entry, records = outcome.entry, outcome.records
    first = records[0] if records else {}
    peaks = [record["peak_bytes"] for record in records if record["peak_bytes"] is not None]
    return {
        "name": entry.name,
        "method": entry.method,
        "error": outcome.error,
        "equal_terms": entry.equal_terms,
        "seeds": plan.seeds(entry),
        "settings": first.get("settings", dict(entry.settings)),
        "trials": None if outcome.tuned is None else outcome.tuned["trials"],
        "metrics": {
            name: _value(_of_seeds(outcome, name), intervals.get((entry.name, name)))
            for name in (plan.metrics if records else ())
        },
        "fit_seconds": [record["fit_seconds"] for record in records],
        "steps": first.get("steps", []),
        "model_bytes": first.get("model_bytes"),
        "parameters": first.get("parameters"),
        "peak_bytes": max(peaks, default=None),
        "popularity": _mean_groups([record["popularity"] for record in records]),
        "history": _by_history(plan, outcome),
        "thresholds": _mean_thresholds(records),
        "calibration": first.get("calibration"),
        "examples": first.get("examples"),
    }


def _value(seeds: Sequence[float], ends: tuple[float, float] | None) -> dict[str, Any]:
    low, high = (None, None) if ends is None else ends
    return {"mean": fmean(seeds), "low": low, "high": high, "seeds": list(seeds)}


def _mean_groups(seeds: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Groups of candidates, with means over seeds."""
    return [
        {
            "name": same[0]["name"],
            "queries": same[0]["queries"],
            "metrics": {
                name: fmean(group["metrics"][name] for group in same) for name in same[0]["metrics"]
            },
        }
        for same in zip(*seeds, strict=True)
    ]


def _mean_thresholds(records: Sequence[Mapping[str, Any]]) -> dict[str, list[float | None]] | None:
    if not records or "thresholds" not in records[0]:
        return None
    return {
        name: [
            None if None in same else fmean(same)
            for same in zip(*(record["thresholds"][name] for record in records), strict=True)
        ]
        for name in records[0]["thresholds"]
    }


def _by_history(plan: ComparePlan, outcome: Outcome) -> list[dict[str, Any]]:
    """The first metric by training pairs of a query, in four groups of similar size."""
    if not outcome.seeds or plan.data.kind == "graded":
        return []
    values = outcome.seeds[0].tensors("values")
    metric = next((name for name in plan.metrics if name in values), None)
    if metric is None:
        return []
    counts = plan.data.split("train").counts()[values["rows"]].numpy()
    each = _seed_mean(outcome, metric)
    return [
        {
            "name": name,
            "queries": int(members.sum()),
            "metrics": {metric: float(each[members].mean())},
        }
        for name, members in quarters(counts)
    ]


def quarters(counts: NDArray[np.int64]) -> list[tuple[str, NDArray[np.bool_]]]:
    """Up to four groups of similar size by ascending count; [n] bool each.

    Equal counts share a group. Empty if all counts are equal.
    """
    edges = np.unique(np.quantile(counts, [0.25, 0.5, 0.75], method="inverted_cdf"))
    group = np.searchsorted(edges, counts)  # a count equal to an edge goes below
    groups = []
    for number in np.unique(group):
        members = group == number
        low, high = counts[members].min(), counts[members].max()
        groups.append((f"{low}" if low == high else f"{low} to {high}", members))
    return groups if len(groups) > 1 else []


# ---------------------------------------------------------------------------------- tests


def _test_rankers(plan: ComparePlan, done: Sequence[Outcome]) -> tuple[Intervals, dict[str, Any]]:
    """Intervals and tests over queries, for the metrics that are means over queries."""
    intervals: dict[tuple[str, str], tuple[float, float]] = {}
    tests: dict[str, Any] = {}
    if not done:
        return intervals, tests
    _check_rows(done)
    names = [outcome.entry.name for outcome in done]
    for metric in plan.metrics:
        if metric not in done[0].seeds[0].tensors("values"):
            continue
        values = np.stack([_seed_mean(outcome, metric) for outcome in done])
        for name, (low, high) in zip(names, significance.mean_intervals(values), strict=True):
            intervals[name, metric] = (float(low), float(high))
        if more_is_better(metric):
            best = _best(done, values.mean(axis=1))
            differences = np.delete(values - values[best], best, axis=0)
            p = significance.flip_test(differences).tolist() if len(differences) else []
            tests[metric] = _test(done, metric, best, p)
    return intervals, tests


def _test_graders(plan: ComparePlan, done: Sequence[Outcome]) -> tuple[Intervals, dict[str, Any]]:
    """Intervals and tests over rows, by one bootstrap for all methods."""
    if not done:
        return {}, {}
    kept = [[folder.tensors("values") for folder in outcome.seeds] for outcome in done]
    scores = [[seed["scores"] for seed in seeds] for seeds in kept]
    specs = [parse_graded(metric) for metric in plan.metrics]
    draws = significance.graded_draws(
        scores, kept[0][0]["grades"], len(plan.data.candidates), specs
    )
    names, intervals, tests = [outcome.entry.name for outcome in done], {}, {}
    for place, metric in enumerate(plan.metrics):
        for name, samples in zip(names, draws[:, place], strict=True):
            intervals[name, metric] = significance.interval_of(samples)
        best = _best(done, np.array([fmean(_of_seeds(outcome, metric)) for outcome in done]))
        drawn = np.delete(draws[:, place] - draws[best, place], best, axis=0)
        p = [significance.p_of_draws(row) for row in drawn]
        tests[metric] = _test(done, metric, best, p)
    return intervals, tests


def _test(done: Sequence[Outcome], metric: str, best: int, p: Sequence[float]) -> dict[str, Any]:
    """Each method against the best one; ``p``: of the others, over queries or rows."""
    top, others = done[best], [outcome for outcome in done if outcome is not done[best]]
    top_values = _of_seeds(top, metric)
    pooled = significance.spread([_of_seeds(outcome, metric) for outcome in done])
    by_seeds = [
        significance.seed_test(_of_seeds(outcome, metric), top_values, pooled) for outcome in others
    ]
    known = [value for value in by_seeds if value is not None]
    training_p: Sequence[float | None] = significance.holm(known) or [None] * len(others)
    tests = {}
    for outcome, one, all_, training in zip(
        others, p, significance.holm(p), training_p, strict=True
    ):
        tests[outcome.entry.name] = {
            "difference": fmean(_of_seeds(outcome, metric)) - fmean(top_values),
            "p": one,
            "p_holm": all_,
            "p_seeds": training,
            "tied": max(all_, training or 0.0) >= _SIGNIFICANCE,
        }
    return {"best": top.entry.name, "others": tests}


def _best(done: Sequence[Outcome], means: Floats) -> int:
    """The best of the methods on equal terms; of all, if none of these gave a result."""
    equal = np.array([outcome.entry.equal_terms for outcome in done])
    return int(np.argmax(np.where(equal if equal.any() else True, means, -np.inf)))


def _of_seeds(outcome: Outcome, metric: str) -> list[float]:
    return [record["metrics"][metric] for record in outcome.records]


def _seed_mean(outcome: Outcome, metric: str) -> Floats:
    """The mean over seeds for each query; [n]."""
    total = torch.zeros(len(outcome.seeds[0].tensors("values")["rows"]), dtype=torch.float64)
    for folder in outcome.seeds:
        total += folder.tensors("values")[metric]
    return (total / len(outcome.seeds)).numpy()


def _check_rows(done: Sequence[Outcome]) -> None:
    first = done[0].seeds[0].tensors("values")["rows"]
    for outcome in done:
        for folder in outcome.seeds:
            if not torch.equal(folder.tensors("values")["rows"], first):
                raise UserError(
                    f"{folder.path} and {done[0].seeds[0].path} have different queries",
                    hint="remove the folder runs and start again",
                )


# ---------------------------------------------------------------------------------- the rest


def _tabulate_sweep(
    plan: ComparePlan, methods: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """The metrics by method and swept value; None without a sweep."""
    if not plan.options.sweep:
        return None
    [setting] = plan.options.sweep
    values = dict.fromkeys(entry.value for entry in plan.entries if entry.value is not None)
    table: dict[str, dict[str, Any]] = {}
    for entry, method in zip(plan.entries, methods, strict=True):
        if entry.value is not None and method["error"] is None:
            table.setdefault(entry.label, {})[entry.value] = {
                name: {end: value[end] for end in ("mean", "low", "high")}
                for name, value in method["metrics"].items()
            }
    return {"setting": setting, "values": list(values), "methods": table}


def _common_width(outcomes: Sequence[Outcome]) -> int | None:
    """The width of the methods on equal terms; None if they have none, or several by a sweep."""
    settings = [outcome.entry.settings for outcome in outcomes if outcome.entry.equal_terms]
    widths = {int(given["width"]) for given in settings if "width" in given}
    return widths.pop() if len(widths) == 1 else None


def _machine() -> dict[str, Any]:
    cpu = platform.processor() or platform.machine()
    with suppress(OSError, IndexError):
        cpu = re.findall(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.M)[0]
    return {
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cpu": cpu,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": platform.platform(),
    }
