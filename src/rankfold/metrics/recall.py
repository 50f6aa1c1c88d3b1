"""Recall: the share of a query's positives that it got, of all or of the first k at most."""

from torch import Tensor

from rankfold.metrics.judged import Judged


def recall(judged: Judged, k: int) -> Tensor:
    """Share of all the query's positives that are among its first k results.

    With hits_br = 1 where the result of rank r (counted from 1) is positive, else 0::

        recall_b = 1/positives_b sum_{r <= k} hits_br

    It divides by all positives, so a query with more than k of them stays below 1.

    Returns [B], and 0 for a query without a positive.
    """
    hits = judged.grades[:, :k] > 0
    return hits.sum(dim=1) / judged.positives.clamp(min=1)


def recall_capped(judged: Judged, k: int) -> Tensor:
    """Share of the positives that k results can hold; the recall of [liang2018].

    ::

        recall_capped_b = 1/min(k, positives_b) sum_{r <= k} hits_br

    A perfect list has 1, even for a query with more than k positives.

    Returns [B], and 0 for a query without a positive.
    """
    hits = judged.grades[:, :k] > 0
    return hits.sum(dim=1) / judged.positives.clamp(min=1, max=k)
