"""Metrics: how good a ranking is. To add one: one file, one line here, one test.

A metric in ``METRICS`` gives one value per query: ``METRICS["ndcg"].value(judge(ids, truth), 10)``.
The caller leaves out the queries without a positive in the split and takes the mean.
A metric in ``CATALOG_METRICS`` gives a single value, from how often each candidate was returned;
one in ``SET_METRICS`` too, from the results that reach their thresholds.
Rows with ordered grades have other metrics: see ``graded.py``.
"""

import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import Literal, NamedTuple, TypeAlias

from torch import Tensor

from rankfold.config import plugins
from rankfold.errors import UserError
from rankfold.metrics.beyond_accuracy import calibration, diversity, novelty, serendipity
from rankfold.metrics.coverage import coverage, gini
from rankfold.metrics.graded import GRADED_METRICS
from rankfold.metrics.hits import (
    average_precision,
    hit,
    precision,
    recall,
    recall_capped,
    reciprocal_rank,
)
from rankfold.metrics.judged import Judged
from rankfold.metrics.ndcg import ndcg, ndcg_graded
from rankfold.metrics.popularity import popularity
from rankfold.metrics.propensity import psn, psn_best, psp, psp_best
from rankfold.metrics.sets import (
    SetCounts,
    macro_f1,
    macro_precision,
    macro_recall,
    micro_f1,
    micro_precision,
    micro_recall,
)

PerQuery: TypeAlias = Callable[[Judged, int], Tensor]
"""``(judged, k) -> [B]`` float32: one value per query, of its first k results."""


class Metric(NamedTuple):
    """A mean over queries of ``value``, divided by the mean of ``best`` if there is one."""

    value: PerQuery
    ordered: bool  # whether the order of the first k results matters
    best: PerQuery | None = None  # the largest value that a list of k results can have
    more_is_better: bool = True  # False: methods are not ranked by it
    reads: Literal["truth", "popularity", "propensity", "taste"] = "truth"
    """``"popularity"`` reads ``popularity_rank`` instead of the truth, ``"propensity"`` reads
    ``inverse_propensity`` as well as the truth, ``"taste"`` reads ``taste``; see ``judge``."""


class CatalogMetric(NamedTuple):
    """One value for all queries, from how often each candidate was returned."""

    value: Callable[[Tensor], Tensor]  # ``(returned [N]) -> []`` float32
    ordered: bool = False
    more_is_better: bool = True


class SetMetric(NamedTuple):
    """One value for all queries, from those of the first k results that reach a threshold."""

    value: Callable[[SetCounts], Tensor]  # -> []
    ordered: bool = False
    more_is_better: bool = True


METRICS: dict[str, Metric] = {
    "ndcg": Metric(ndcg, ordered=True),
    "ndcg-graded": Metric(ndcg_graded, ordered=True),
    "mrr": Metric(reciprocal_rank, ordered=True),
    "map": Metric(average_precision, ordered=True),
    "recall": Metric(recall, ordered=False),
    "recall-capped": Metric(recall_capped, ordered=False),
    "precision": Metric(precision, ordered=False),
    "hit": Metric(hit, ordered=False),
    "popularity": Metric(popularity, ordered=False, more_is_better=False, reads="popularity"),
    "psp": Metric(psp, ordered=False, best=psp_best, reads="propensity"),
    "psp-raw": Metric(psp, ordered=False, reads="propensity"),
    "psn": Metric(psn, ordered=True, best=psn_best, reads="propensity"),
    "psn-raw": Metric(psn, ordered=True, reads="propensity"),
    "novelty": Metric(novelty, ordered=False, reads="taste"),
    "diversity": Metric(diversity, ordered=False, reads="taste"),
    "serendipity": Metric(serendipity, ordered=False, reads="taste"),
    "calibration": Metric(calibration, ordered=False, more_is_better=False, reads="taste"),
}

CATALOG_METRICS: dict[str, CatalogMetric] = {
    "coverage": CatalogMetric(coverage),
    "gini": CatalogMetric(gini, more_is_better=False),
}

SET_METRICS: dict[str, SetMetric] = {
    "micro-f1": SetMetric(micro_f1),
    "macro-f1": SetMetric(macro_f1),
    "micro-precision": SetMetric(micro_precision),
    "macro-precision": SetMetric(macro_precision),
    "micro-recall": SetMetric(micro_recall),
    "macro-recall": SetMetric(macro_recall),
}
METRICS |= plugins("rankfold.metrics")

_NAMES = (*METRICS, *CATALOG_METRICS, *SET_METRICS)
_SYNONYMS = {"p": "precision", "r": "recall", "n": "ndcg", "hr": "hit", "psndcg": "psn"}
"""Names from other libraries that are not similar to ours."""
_WHOLE = "[1-9][0-9]{0,17}"


class MetricSpec(NamedTuple):
    """A metric as users write it: ``ndcg@10`` is ndcg of the first 10 results."""

    name: str  # a key of one of the registries
    k: int  # at least 1

    def __str__(self) -> str:
        return f"{self.name}@{self.k}"


def parse(text: str) -> MetricSpec:
    """``"ndcg@10" -> MetricSpec("ndcg", 10)``; anything else is a UserError."""
    name, at, k = text.strip().partition("@")
    if name not in _NAMES:
        raise UserError(f"there is no metric {name!r}", hint=_hint(name, k))
    if not at:
        raise UserError(f"metric {name!r} needs a number of results", hint=f"write {name}@10")
    if not re.fullmatch(_WHOLE, k):
        raise UserError(
            f"metric {name!r} needs a whole number of at least 1 after the @, got {k!r}",
            hint=f"write {name}@10",
        )
    return MetricSpec(name, int(k))


def more_is_better(text: str) -> bool:
    """Whether a higher value of a metric such as ``ndcg@10`` or ``tpr@fpr=.01`` is better.

    It is for all metrics of graded rows.
    """
    name = text.strip().partition("@")[0]
    metric = METRICS.get(name) or CATALOG_METRICS.get(name)
    return metric is None or metric.more_is_better


def _hint(name: str, k: str) -> str:
    known = ", ".join(f"{name}@k" for name in _NAMES)
    if name in GRADED_METRICS:
        return f"{name} is for graded rows; the metrics of pairs are {known}"
    lower = name.lower()
    near = [_SYNONYMS[lower]] if lower in _SYNONYMS else get_close_matches(lower, _NAMES, n=1)
    depth = k if re.fullmatch(_WHOLE, k) else "10"
    return f"did you mean {near[0]}@{depth}?" if near else f"the metrics are {known}"
