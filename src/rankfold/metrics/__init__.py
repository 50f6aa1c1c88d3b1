"""Metrics: how good a ranking is. To add one: one file, one line here, one test.

A metric in ``METRICS`` gives one value per query: ``METRICS["ndcg"](judge(ids, truth), 10)``.
Whoever calls it leaves out the queries without a positive in the split and takes the mean.
One in ``SHOWN_METRICS`` gives a single value, from how often each candidate was shown to anyone.
"""

import re
from difflib import get_close_matches
from typing import NamedTuple

from rankfold.errors import UserError
from rankfold.metrics.average_precision import average_precision
from rankfold.metrics.coverage import ShownMetric, count_shown, coverage
from rankfold.metrics.hit import hit
from rankfold.metrics.judged import Judged, Metric, judge
from rankfold.metrics.ndcg import ndcg, ndcg_graded
from rankfold.metrics.popularity import popularity, popularity_rank
from rankfold.metrics.precision import precision
from rankfold.metrics.recall import recall
from rankfold.metrics.reciprocal_rank import reciprocal_rank

__all__ = [
    "METRICS",
    "SHOWN_METRICS",
    "Judged",
    "Metric",
    "MetricSpec",
    "ShownMetric",
    "count_shown",
    "judge",
    "parse",
    "popularity_rank",
]

METRICS: dict[str, Metric] = {
    "ndcg": ndcg,
    "ndcg-graded": ndcg_graded,
    "mrr": reciprocal_rank,
    "map": average_precision,
    "recall": recall,
    "precision": precision,
    "hit": hit,
    "popularity": popularity,
}

SHOWN_METRICS: dict[str, ShownMetric] = {
    "coverage": coverage,
}


class MetricSpec(NamedTuple):
    """A metric as a person names it: ``ndcg@10`` is ndcg of the first 10 results."""

    name: str  # a key of METRICS or SHOWN_METRICS
    k: int  # at least 1

    def __str__(self) -> str:
        return f"{self.name}@{self.k}"


def parse(text: str) -> MetricSpec:
    """``"ndcg@10" -> MetricSpec("ndcg", 10)``; anything else is a UserError."""
    name, at, k = text.strip().partition("@")
    if name not in METRICS and name not in SHOWN_METRICS:
        raise UserError(f"there is no metric {name!r}", hint=_hint(name))
    if not at:
        raise UserError(
            f"metric {name!r} does not say how many results count", hint=f"write {name}@10"
        )
    if not re.fullmatch("[1-9][0-9]{0,17}", k):
        raise UserError(
            f"metric {text.strip()!r} must have a whole number from 1 after the @, not {k!r}",
            hint=f"write {name}@10",
        )
    return MetricSpec(name, int(k))


def _hint(name: str) -> str:
    known = [*METRICS, *SHOWN_METRICS]
    near = get_close_matches(name.lower(), known, n=1)
    if near:
        return f"did you mean {near[0]}@10?"
    return f"the metrics are {', '.join(f'{name}@k' for name in known)}"
