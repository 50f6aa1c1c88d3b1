"""The results of a comparison in a few sentences."""

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from rankfold.report.formats import UNKNOWN, duration, is_known, join, number, size

Entry = Mapping[str, Any]  # one method, as in ``results["methods"]``


def summary(results: Mapping[str, Any]) -> list[str]:
    """The best methods on equal terms, their lead and cost, other widths, and the failures."""
    ranking, failed = ranked(results), [e for e in results["methods"] if e["error"]]
    where = f"the {results['split']} split of {results['data']['name']}"
    if not ranking:
        return [f"Every method failed on {where}.", *_failures(failed)]
    best, first = ranking[0], results["metrics"][0]
    ranking, others = equal_terms(ranking)
    if not math.isfinite(mean_of(best, first)):
        return [f"{first} is not defined for any method on {where}.", *_failures(failed)]
    reached = f"{first} {_with_interval(best['metrics'].get(first))} on {where}"
    at_width = f", all with width {results['width']}" if results.get("width") else ""
    tests = results["tests"].get(first, {}).get("others", {})
    tied = [entry for entry in ranking[1:] if tests.get(entry["name"], {}).get("tied")]
    if len(ranking) == 1:
        sentences = [f"{best['name']} reaches {reached}. No other method gave a result."]
    elif tied:
        names = join([best["name"], *(entry["name"] for entry in tied)])
        sentences = [
            f"Tied for best{at_width}: {names}. {best['name']} reaches {reached}; "
            "the differences may be chance."
        ]
    else:
        sentences = [f"{best['name']} is best{at_width}: {reached}."]
    if len(ranking) > 1:
        sentences += [*_against(results, ranking, tied), *_other_metrics(results, best["name"])]
    sentences += _without_width(results, ranking)
    if others:
        of_these = "" if len(others) == 1 else f", the best of {len(others)},"
        score = _with_interval(others[0]["metrics"].get(first))
        sentences.append(f"With another width, {others[0]['name']}{of_these} reaches {score}.")
    return [*sentences, *_cost(best), *_failures(failed)]


def verdicts(results: Mapping[str, Any], metrics: Sequence[str]) -> list[str]:
    """Which differences from the best are significant; metrics that agree share a sentence.

    Only methods on equal terms are compared.
    """
    compared = {entry["name"] for entry in equal_terms(ranked(results))[0]}
    groups: dict[tuple[str, ...], list[str]] = {}
    for metric in metrics:
        test = results["tests"][metric]
        tied = [name for name, other in test["others"].items() if other["tied"]]
        groups.setdefault((test["best"], *filter(compared.__contains__, tied)), []).append(metric)
    return [_verdict(by, *names, others=len(compared) - 1) for names, by in groups.items()]


def ranked(results: Mapping[str, Any]) -> list[Entry]:
    """The methods without an error, best first by the first metric; other widths at the end."""
    first = results["metrics"][0]
    good = [entry for entry in results["methods"] if not entry["error"]]
    good.sort(key=lambda entry: -_or(mean_of(entry, first), -math.inf))
    equal, others = equal_terms(good)
    return equal + others


def equal_terms(ranking: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
    """The methods with the common width, then the others; all are equal if none has it."""
    equal = [entry for entry in ranking if entry.get("equal_terms", True)]
    others = [entry for entry in ranking if not entry.get("equal_terms", True)]
    return (equal, others) if equal else (others, [])


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


def _against(
    results: Mapping[str, Any], ranking: Sequence[Entry], tied: Sequence[Entry]
) -> list[str]:
    """The fastest of the tied methods, then the best of the others."""
    first, best = results["metrics"][0], ranking[0]
    apart = [e for e in ranking[1:] if e not in tied and math.isfinite(mean_of(e, first))]
    sentences = []
    if tied:
        fastest = min([best, *tied], key=lambda entry: _or(fit_seconds(entry), math.inf))
        if math.isfinite(fit_seconds(fastest)):
            seconds = duration(fit_seconds(fastest))
            sentences.append(f"Of these, {fastest['name']} fits fastest, in {seconds}.")
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


def _without_width(results: Mapping[str, Any], ranking: Sequence[Entry]) -> list[str]:
    """The methods that the common width says nothing of, such as ``ease``."""
    names = [e["name"] for e in ranking if "width" not in e.get("settings", {"width": None})]
    if not names or not results.get("width"):
        return []
    return [f"{join(names)} {'has' if len(names) == 1 else 'have'} no width."]


def _cost(best: Entry) -> list[str]:
    sentences, name = [], best["name"]
    if math.isfinite(fit_seconds(best)):
        trials = best["trials"]
        tuning = f", after {duration(trials['seconds'])} of tuning" if trials else ""
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
    ends, mean = (value.get("low"), value.get("high")), number(value.get("mean"))
    shown = " to ".join(map(number, ends))
    return f"{mean} (95% interval {shown})" if all(map(is_known, ends)) else mean


def _or(value: float, other: float) -> float:
    return value if math.isfinite(value) else other
