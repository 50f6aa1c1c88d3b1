"""The results of a comparison in a few sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from rankfold.report.format import UNKNOWN, duration, is_known, join, number, size

Entry = Mapping[str, Any]  # one method, as in ``results["methods"]``


def summary(results: Mapping[str, Any]) -> list[str]:
    """The best method, its lead, its cost, and the failures."""
    ranking, failed = ranked(results), [e for e in results["methods"] if e["error"]]
    where = f"the {results['split']} split of {results['data']['name']}"
    if not ranking:
        return [f"Every method failed on {where}.", *_failures(failed)]
    best, first = ranking[0], results["metrics"][0]
    if not math.isfinite(mean_of(best, first)):
        return [f"{first} is not defined for any method on {where}.", *_failures(failed)]
    reached = f"{first} {_with_interval(best['metrics'].get(first))} on {where}"
    if len(ranking) == 1:
        sentences = [f"{best['name']} reaches {reached}. No other method gave a result."]
    else:
        sentences = [f"{best['name']} is best: {reached}.", *_against(results, ranking)]
        sentences += _other_metrics(results, best["name"])
    return [*sentences, *_cost(best), *_failures(failed)]


def verdicts(results: Mapping[str, Any], metrics: Sequence[str]) -> list[str]:
    """Which differences from the best are significant; metrics that agree share a sentence."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for metric in metrics:
        test = results["tests"][metric]
        tied = [name for name, other in test["others"].items() if other["tied"]]
        groups.setdefault((test["best"], *tied), []).append(metric)
    return [
        _verdict(by, *names, others=len(results["tests"][by[0]]["others"]))
        for names, by in groups.items()
    ]


def ranked(results: Mapping[str, Any]) -> list[Entry]:
    """The methods without an error, best first by the first metric."""
    first = results["metrics"][0]
    good = [entry for entry in results["methods"] if not entry["error"]]
    return sorted(good, key=lambda entry: -_or(mean_of(entry, first), -math.inf))


def mean_of(entry: Entry, metric: str) -> float:
    """The mean of a metric; NaN without one."""
    mean = (entry["metrics"].get(metric) or {}).get("mean")
    return math.nan if mean is None else float(mean)


def fit_seconds(entry: Entry) -> float:
    """The time of one fit, as the median over seeds; NaN if unknown."""
    known = [seconds for seconds in entry["fit_seconds"] or [] if seconds is not None]
    return float(median(known)) if known else math.nan


def _verdict(metrics: Sequence[str], best: str, *tied: str, others: int) -> str:
    """``others``: the number of methods compared with the best."""
    if not tied:
        return f"By {join(metrics)}, {best} is significantly better than {_all(others)}."
    rest = f" Its lead over {_all(others - len(tied))} is significant."
    return (
        f"By {join(metrics)}, {best} has the highest mean but is tied with {join(tied)}: "
        f"the difference may be chance.{rest if others > len(tied) else ''}"
    )


def _all(count: int) -> str:
    return "the other method" if count == 1 else "every other method"


def _against(results: Mapping[str, Any], ranking: Sequence[Entry]) -> list[str]:
    """The tied methods, then the best of the others."""
    first, best = results["metrics"][0], ranking[0]
    others = results["tests"].get(first, {}).get("others", {})
    tied = [e for e in ranking[1:] if others.get(e["name"], {}).get("tied")]
    apart = [e for e in ranking[1:] if e not in tied and math.isfinite(mean_of(e, first))]
    sentences = []
    if tied:
        one = len(tied) == 1
        sentences.append(
            f"{join([e['name'] for e in tied])} {'is' if one else 'are'} tied with it: "
            f"the {'difference' if one else 'differences'} may be chance."
        )
        cheapest = min(tied, key=lambda entry: _or(fit_seconds(entry), math.inf))
        if fit_seconds(cheapest) < fit_seconds(best):
            seconds = duration(fit_seconds(cheapest))
            sentences.append(
                f"{cheapest['name']} fits faster, in {seconds}."
                if one
                else f"Of these, {cheapest['name']} fits fastest, in {seconds}."
            )
    if apart:
        who = f"The best of the others, {apart[0]['name']}," if tied else apart[0]["name"]
        gap, top = mean_of(best, first) - mean_of(apart[0], first), mean_of(best, first)
        share = f" ({gap / top:.1%})" if top > 0 else ""
        sentences.append(f"{who} is {number(gap)}{share} below.")
    return sentences


def _other_metrics(results: Mapping[str, Any], best: str) -> list[str]:
    """The best method by each of the other tested metrics."""
    others = {m: t["best"] for m, t in results["tests"].items() if m != results["metrics"][0]}
    same = [metric for metric, name in others.items() if name == best]
    sentences = [f"{best} is also best by {join(same)}."] if same else []
    for name in dict.fromkeys(name for name in others.values() if name != best):
        metrics = [metric for metric, winner in others.items() if winner == name]
        sentences.append(f"By {join(metrics)}, {name} is best.")
    return sentences


def _cost(best: Entry) -> list[str]:
    sentences, name = [], best["name"]
    if math.isfinite(fit_seconds(best)):
        tuning = (
            f", after {duration(best['trials']['seconds'])} of tuning" if best["trials"] else ""
        )
        sentences.append(f"A fit of {name} took {duration(fit_seconds(best))}{tuning}.")
    if best["model_bytes"] is not None:
        sentences.append(f"The model takes {size(best['model_bytes'])} on disk.")
    return sentences


def _failures(failed: Sequence[Entry]) -> list[str]:
    if not failed:
        return []
    why, names = failed[0]["error"]["message"], [entry["name"] for entry in failed]
    if len(failed) == 1:
        return [f"{names[0]} failed: {why}."]
    return [f"{join(names)} failed. The error of {names[0]}: {why}."]


def _with_interval(value: Mapping[str, Any] | None) -> str:
    if value is None:
        return UNKNOWN
    ends = value.get("low"), value.get("high")
    interval = (
        f" (95% interval {' to '.join(map(number, ends))})" if all(map(is_known, ends)) else ""
    )
    return f"{number(value.get('mean'))}{interval}"


def _or(value: float, other: float) -> float:
    return value if math.isfinite(value) else other
