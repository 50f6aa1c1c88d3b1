"""Metrics of the hits of a query: its results that are positive.

hits_br = 1 where the result of rank r (counted from 1) is positive, else 0. All return [B], and 0
for a query without a positive.
"""

import torch
from torch import Tensor

from rankfold.metrics.judged import Judged


def precision(judged: Judged, k: int) -> Tensor:
    """Share of positives among k results.

    ::

        precision_b = 1/k sum_{r <= k} hits_br

    It divides by k even if fewer were returned: a short list gains nothing.
    """
    return _hits(judged, k).sum(dim=1) / k


def recall(judged: Judged, k: int) -> Tensor:
    """Share of all the query's positives that are among its first k results.

    ::

        recall_b = 1/positives_b sum_{r <= k} hits_br

    It divides by all positives, so a query with more than k of them stays below 1.
    """
    return _hits(judged, k).sum(dim=1) / judged.positives.clamp(min=1)


def recall_capped(judged: Judged, k: int) -> Tensor:
    """Share of the positives that k results can hold; the recall of [liang2018].

    ::

        recall_capped_b = 1/min(k, positives_b) sum_{r <= k} hits_br

    A perfect list has 1, even for a query with more than k positives.
    """
    return _hits(judged, k).sum(dim=1) / judged.positives.clamp(min=1, max=k)


def hit(judged: Judged, k: int) -> Tensor:
    """1 if there is a positive among the first k results, else 0; its mean is the hit rate.

    trec_eval calls it success::

        hit_b = max_{r <= k} hits_br
    """
    return _hits(judged, k).any(dim=1).float()


def reciprocal_rank(judged: Judged, k: int) -> Tensor:
    """One over the rank of the first positive among the first k; its mean over queries is MRR.

    With before_b the number of results ahead of the first positive::

        reciprocal_rank_b = 1 / (before_b + 1)  if before_b < k, else 0
    """
    hits = _hits(judged, k)
    before = (hits.cumsum(dim=1) == 0).sum(dim=1)
    return torch.where(before < hits.shape[1], 1.0 / (before + 1), 0.0)


def average_precision(judged: Judged, k: int) -> Tensor:
    """Precision at the rank of each positive in the first k, averaged over all positives.

    Its mean over queries is MAP::

        average_precision_b = 1/positives_b sum_{r <= k} hits_br (sum_{s <= r} hits_bs) / r

    It divides by all positives, like map_cut of trec_eval: a query with more than k positives stays
    below 1. (Other libraries divide by min(k, positives_b).)
    """
    hits = _hits(judged, k)
    ranks = torch.arange(1, hits.shape[1] + 1, device=hits.device)
    precisions = hits.cumsum(dim=1) / ranks
    return (hits * precisions).sum(dim=1) / judged.positives.clamp(min=1)


def _hits(judged: Judged, k: int) -> Tensor:
    return judged.grades[:, :k] > 0
