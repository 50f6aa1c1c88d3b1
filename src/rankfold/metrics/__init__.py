"""Metrics: how good a ranking is. To add one: one file, one line here, one test.

A metric in ``METRICS`` gives one value per query: ``METRICS["ndcg"](judge(ids, truth), 10)``.
Whoever calls it leaves out the queries without a positive in the split and takes the mean.
One in ``SHOWN_METRICS`` gives a single value, from how often each candidate was shown to anyone.
One in ``PROPENSITY_METRICS`` needs ``judge(..., inverse_propensity=...)``; it may be a ratio of two
means, of what each query got and of the best that it could have got.
Rows with ordered grades have metrics of their own: see ``graded.py``.
"""

import re
from difflib import get_close_matches
from typing import NamedTuple

from rankfold.errors import UserError
from rankfold.metrics.average_precision import average_precision
from rankfold.metrics.coverage import ShownMetric, count_shown, coverage
from rankfold.metrics.graded import (
    GRADED_METRICS,
    GradedSpec,
    graded_mean,
    graded_values,
    parse_graded,
)
from rankfold.metrics.hit import hit
from rankfold.metrics.judged import Judged, Metric, judge
from rankfold.metrics.ndcg import ndcg, ndcg_graded
from rankfold.metrics.popularity import popularity, popularity_rank
from rankfold.metrics.precision import precision
from rankfold.metrics.propensity import (
    Propensity,
    PropensityMetric,
    check_propensity,
    inverse_propensity,
    parse_propensity,
    psn,
    psn_best,
    psp,
    psp_best,
)
from rankfold.metrics.recall import recall
from rankfold.metrics.reciprocal_rank import reciprocal_rank
from rankfold.metrics.strata import frequency_groups, within

__all__ = [
    "GRADED_METRICS",
    "METRICS",
    "PROPENSITY_METRICS",
    "SHOWN_METRICS",
    "GradedSpec",
    "Judged",
    "Metric",
    "MetricSpec",
    "Propensity",
    "PropensityMetric",
    "ShownMetric",
    "check_propensity",
    "count_shown",
    "frequency_groups",
    "graded_mean",
    "graded_values",
    "inverse_propensity",
    "judge",
    "parse",
    "parse_graded",
    "parse_propensity",
    "popularity_rank",
    "within",
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

PROPENSITY_METRICS: dict[str, PropensityMetric] = {
    "psp": PropensityMetric(psp, psp_best),
    "psp-raw": PropensityMetric(psp, None),
    "psn": PropensityMetric(psn, psn_best),
    "psn-raw": PropensityMetric(psn, None),
}

_KNOWN = (*METRICS, *SHOWN_METRICS, *PROPENSITY_METRICS)
_ELSEWHERE = {"p": "precision", "r": "recall", "n": "ndcg", "hr": "hit", "psndcg": "psn"}
"""Ours by the names that others have for them, where no likeness tells it."""
_WHOLE = "[1-9][0-9]{0,17}"


class MetricSpec(NamedTuple):
    """A metric as a person names it: ``ndcg@10`` is ndcg of the first 10 results."""

    name: str  # a key of one of the registries
    k: int  # at least 1

    def __str__(self) -> str:
        return f"{self.name}@{self.k}"


def parse(text: str) -> MetricSpec:
    """``"ndcg@10" -> MetricSpec("ndcg", 10)``; anything else is a UserError."""
    name, at, k = text.strip().partition("@")
    if name not in _KNOWN:
        raise UserError(f"there is no metric {name!r}", hint=_hint(name, k))
    if not at:
        raise UserError(
            f"metric {name!r} does not say how many results count", hint=f"write {name}@10"
        )
    if not re.fullmatch(_WHOLE, k):
        raise UserError(
            f"metric {text.strip()!r} must have a whole number from 1 after the @, not {k!r}",
            hint=f"write {name}@10",
        )
    return MetricSpec(name, int(k))


def _hint(name: str, k: str) -> str:
    known = ", ".join(f"{name}@k" for name in _KNOWN)
    if name in GRADED_METRICS:
        return f"that is one of graded rows; those of pairs are {known}"
    lower = name.lower()
    near = [_ELSEWHERE[lower]] if lower in _ELSEWHERE else get_close_matches(lower, _KNOWN, n=1)
    depth = k if re.fullmatch(_WHOLE, k) else "10"
    return f"did you mean {near[0]}@{depth}?" if near else f"the metrics are {known}"
