"""Precision: the share of positives among the results of a query."""

from torch import Tensor

from rankfold.metrics.judged import Judged


def precision(judged: Judged, k: int) -> Tensor:
    """Share of positives among k results.

    With hits_br = 1 where the result of rank r (counted from 1) is positive, else 0::

        precision_b = 1/k sum_{r <= k} hits_br

    It divides by k even if fewer were returned: a short list gains nothing.

    Returns [B], and 0 for a query without a positive.
    """
    hits = judged.grades[:, :k] > 0
    return hits.sum(dim=1) / k
