"""Popularity: how popular the results of a query are. Popular candidates have low ranks."""

import torch
from torch import Tensor

from rankfold.metrics.judged import Judged


def popularity(judged: Judged, k: int) -> Tensor:
    """Mean popularity rank of the first k results, without padding.

    With L_b the candidates among the first k, without padding::

        popularity_b = 1/|L_b| sum_{y in L_b} popularity_rank_y

    It does not read the truth: a query without a positive has a value like any other.

    Returns [B], from 1 to N, and 0 for a query that got nothing.
    """
    if judged.popularity_rank is None:
        raise ValueError("popularity needs judge(..., popularity_rank=...)")
    ids = judged.ids[:, :k]
    listed = ids >= 0
    ranks = judged.popularity_rank.new_zeros(ids.shape)
    ranks[listed] = judged.popularity_rank[ids[listed]]
    return ranks.sum(dim=1) / listed.sum(dim=1).clamp(min=1)


def popularity_rank(counts: Tensor) -> Tensor:
    """Rank of each candidate by its count in train, 1 for the most popular.

    Equally popular candidates share the mean of their ranks, so renaming them changes nothing::

        popularity_rank_y = |{z: counts_z > counts_y}| + (|{z: counts_z = counts_y}| + 1) / 2

    ``counts`` [N] are those of ``train.candidate_counts()``. Returns [N] float32.
    """
    ascending = counts.sort().values
    fewer = torch.searchsorted(ascending, counts)
    not_more = torch.searchsorted(ascending, counts, right=True)
    more, equal = len(counts) - not_more, not_more - fewer
    return more + (equal + 1) / 2
