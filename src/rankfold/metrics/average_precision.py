"""Average precision: precision at the rank of every positive. Its mean over queries is MAP."""

import torch
from torch import Tensor

from rankfold.metrics.judged import Judged


def average_precision(judged: Judged, k: int) -> Tensor:
    """Precision at the rank of each positive in the first k, averaged over all positives.

    With hits_br = 1 where the result of rank r (counted from 1) is positive, else 0::

        average_precision_b = 1/positives_b sum_{r <= k} hits_br (sum_{s <= r} hits_bs) / r

    It divides by all positives, like map_cut of trec_eval: a query with more than k positives stays
    below 1. (Other libraries divide by min(k, positives_b).)

    Returns [B], and 0 for a query without a positive.
    """
    hits = judged.grades[:, :k] > 0
    ranks = torch.arange(1, hits.shape[1] + 1, device=hits.device)
    precision = hits.cumsum(dim=1) / ranks
    return (hits * precision).sum(dim=1) / judged.positives.clamp(min=1)
