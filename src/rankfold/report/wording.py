"""Results of a comparison in words and numbers that people read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

NONE = "\N{EN DASH}"  # what stands where nothing is known
MINUS = "\N{MINUS SIGN}"  # as wide as a plus
Entry = Mapping[str, Any]  # of a method, as in ``results["methods"]``


def summary(results: Mapping[str, Any]) -> list[str]:
    """What came out, in a few sentences: the best, by how much, what it costs, what failed."""
    ranking, failed = ranked(results), [e for e in results["methods"] if e["error"]]
    where = f"the {results['split']} split of {results['data']['name']}"
    if not ranking:
        return [f"No method gave a result on {where}.", *_failures(failed)]
    best, first = ranking[0], results["metrics"][0]
    if not math.isfinite(mean_of(best, first)):
        return [f"No method has a value of {first} on {where}.", *_failures(failed)]
    reached = f"{first} {_with_interval(best['metrics'].get(first))} on {where}"
    if len(ranking) == 1:
        sentences = [f"{best['name']} reaches {reached}; there is nothing to compare it with."]
    else:
        sentences = [f"{best['name']} is best: {reached}.", *_against(results, ranking)]
        sentences += _other_metrics(results, best["name"])
    return [*sentences, *_cost(best), *_failures(failed)]


def verdicts(results: Mapping[str, Any], metrics: Sequence[str]) -> list[str]:
    """Which differences to the best are more than chance; metrics that agree share a sentence."""
    found: dict[tuple[str, ...], list[str]] = {}
    for metric in metrics:
        test = results["tests"][metric]
        tied = [name for name, other in test["others"].items() if other["tied"]]
        found.setdefault((test["best"], *tied), []).append(metric)
    return [
        _verdict(by, *names, others=len(results["tests"][by[0]]["others"]))
        for names, by in found.items()
    ]


def ranked(results: Mapping[str, Any]) -> list[Entry]:
    """The methods that gave a result, best first by the first metric."""
    first = results["metrics"][0]
    good = [entry for entry in results["methods"] if not entry["error"]]
    return sorted(good, key=lambda entry: -_or(mean_of(entry, first), -math.inf))


def mean_of(entry: Entry, metric: str) -> float:
    """The mean of a metric, NaN if there is none."""
    found = (entry["metrics"].get(metric) or {}).get("mean")
    return math.nan if found is None else float(found)


def fit_seconds(entry: Entry) -> float:
    """Of one fit: the median over seeds, NaN if none is known."""
    known = [seconds for seconds in entry["fit_seconds"] or [] if seconds is not None]
    return float(median(known)) if known else math.nan


def number(value: float | None, digits: int = 4) -> str:
    return NONE if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def signed(value: float | None) -> str:
    """With its sign."""
    return (
        NONE if value is None or not math.isfinite(value) else f"{value:+.4f}".replace("-", MINUS)
    )


def chance(p: float | None) -> str:
    """A p value."""
    if p is None or not math.isfinite(p):
        return NONE
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def duration(seconds: float | None) -> str:
    """With two or three digits, in the unit that fits."""
    if seconds is None or not math.isfinite(seconds):
        return NONE
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 599.5:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 5997 else f"{seconds / 3600:.3g} h"


def amount(count: float | None) -> str:
    return NONE if count is None or not math.isfinite(count) else f"{count:,.0f}"


def size(count: float | None) -> str:
    """Bytes in the unit that fits; 1 MB is a million."""
    if count is None or not math.isfinite(count):
        return NONE
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= 0.9995 * unit:
            return f"{count / unit:.3g} {name}"
    return f"{count:.0f} B"


def listed(names: Sequence[str]) -> str:
    """``a, b and c``."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def setting(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


# ---------------------------------------------------------------------------------- sentences


def _verdict(metrics: Sequence[str], best: str, *tied: str, others: int) -> str:
    """``others``: with how many the best was compared."""
    if not tied:
        return f"By {listed(metrics)}, {best} is better than {_all(others)} by more than chance."
    rest = f" Its lead over {_all(others - len(tied))} is more than that."
    return (
        f"By {listed(metrics)}, {best} has the highest mean but is tied with {listed(tied)}: "
        f"that lead may be chance.{rest if others > len(tied) else ''}"
    )


def _all(count: int) -> str:
    return "the other method" if count == 1 else "every other method"


def _against(results: Mapping[str, Any], ranking: Sequence[Entry]) -> list[str]:
    """How far the others are: those that are tied, then the first that is not."""
    first, best = results["metrics"][0], ranking[0]
    others = results["tests"].get(first, {}).get("others", {})
    tied = [e for e in ranking[1:] if others.get(e["name"], {}).get("tied")]
    apart = [e for e in ranking[1:] if e not in tied and math.isfinite(mean_of(e, first))]
    found = []
    if tied:
        one = len(tied) == 1
        found.append(
            f"{listed([e['name'] for e in tied])} {'is' if one else 'are'} tied with it: "
            f"{'that difference' if one else 'these differences'} may be chance."
        )
        cheapest = min(tied, key=lambda entry: _or(fit_seconds(entry), math.inf))
        if fit_seconds(cheapest) < fit_seconds(best):
            seconds = duration(fit_seconds(cheapest))
            found.append(f"Of these, {cheapest['name']} fits fastest, in {seconds}.")
    if apart:
        who = f"the first that is not tied, {apart[0]['name']}," if tied else apart[0]["name"]
        gap, top = mean_of(best, first) - mean_of(apart[0], first), mean_of(best, first)
        share = f" ({gap / top:.1%})" if top > 0 else ""
        found.append(f"{who[0].upper() + who[1:] if tied else who} is {number(gap)}{share} below.")
    return found


def _other_metrics(results: Mapping[str, Any], best: str) -> list[str]:
    """Who is best by the other metrics that were tested."""
    others = {m: t["best"] for m, t in results["tests"].items() if m != results["metrics"][0]}
    same = [metric for metric, name in others.items() if name == best]
    found = [f"{best} is best by {listed(same)} too."] if same else []
    for name in dict.fromkeys(name for name in others.values() if name != best):
        found.append(f"By {listed([m for m, n in others.items() if n == name])}, {name} is best.")
    return found


def _cost(best: Entry) -> list[str]:
    found, name = [], best["name"]
    if math.isfinite(fit_seconds(best)):
        tuning = (
            f", after {duration(best['trials']['seconds'])} of tuning" if best["trials"] else ""
        )
        found.append(f"A fit of {name} took {duration(fit_seconds(best))}{tuning}.")
    if best["model_bytes"] is not None:
        found.append(f"The model takes {size(best['model_bytes'])} on disk.")
    return found


def _failures(failed: Sequence[Entry]) -> list[str]:
    if not failed:
        return []
    why, names = failed[0]["error"]["message"], [entry["name"] for entry in failed]
    if len(failed) == 1:
        return [f"{names[0]} failed: {why}."]
    return [f"{listed(names)} failed, {names[0]} because {why}."]


def _with_interval(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return NONE
    ends = found.get("low"), found.get("high")
    known = all(end is not None and math.isfinite(end) for end in ends)
    interval = f" (95% interval {number(ends[0])} to {number(ends[1])})" if known else ""
    return f"{number(found.get('mean'))}{interval}"


def _or(value: float, other: float) -> float:
    return value if math.isfinite(value) else other
