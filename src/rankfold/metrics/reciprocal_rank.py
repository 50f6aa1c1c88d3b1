"""Reciprocal rank: the rank of the first positive. Its mean over queries is MRR."""

import torch
from torch import Tensor

from rankfold.metrics.judged import Judged


def reciprocal_rank(judged: Judged, k: int) -> Tensor:
    """One over the rank of the first positive among the first k.

    With before_b the number of results ahead of the first positive::

        reciprocal_rank_b = 1 / (before_b + 1)  if before_b < k, else 0

    Returns [B], and 0 for a query without a positive.
    """
    hits = judged.grades[:, :k] > 0
    before = (hits.cumsum(dim=1) == 0).sum(dim=1)
    return torch.where(before < hits.shape[1], 1.0 / (before + 1), 0.0)
