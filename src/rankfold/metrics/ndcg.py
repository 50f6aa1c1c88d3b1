"""Normalised discounted cumulative gain: a positive counts less at a later rank.

Both metrics return [B], and 0 for a query without a positive.
"""

import torch
from torch import Tensor

from rankfold.metrics.judged import Judged


def ndcg(judged: Judged, k: int) -> Tensor:
    """Discounted count of the positives in the first k, as a share of the best possible.

    With hits_br = 1 where the result of rank r (counted from 1) is positive, else 0::

        ndcg_b = sum_{r <= k} hits_br / log2(r + 1)
               / sum_{r <= min(k, positives_b)} 1 / log2(r + 1)
    """
    return share_of_ideal((judged.grades > 0).float(), (judged.ideal > 0).float(), judged, k)


def ndcg_graded(judged: Judged, k: int) -> Tensor:
    """Discounted sum of the grades in the first k, as a share of the best possible.

    The gain is the grade itself, as in trec_eval (not 2^grade - 1)::

        ndcg_graded_b = sum_{r <= k} grades_br / log2(r + 1)
                      / sum_{r <= k} ideal_br / log2(r + 1)
    """
    return share_of_ideal(judged.grades, judged.ideal, judged, k)


def dcg(gains: Tensor, k: int) -> Tensor:
    """sum_{r <= k} gains_br / log2(r + 1); [B]."""
    gains = gains[:, :k]
    ranks = torch.arange(1, gains.shape[1] + 1, device=gains.device)
    return (gains / torch.log2(ranks + 1)).sum(dim=1)


def check_ideal(judged: Judged, k: int) -> None:
    """A ValueError for a k beyond the ideal list."""
    width = judged.ideal.shape[1]
    if k > width and bool((judged.positives > width).any()):
        raise ValueError(f"k must be at most {width}, the length of the ideal list, got {k}")


def share_of_ideal(gains: Tensor, ideal: Tensor, judged: Judged, k: int) -> Tensor:
    """The ``dcg`` of the gains over that of the ideal ones, 0 if that is 0; [B]."""
    check_ideal(judged, k)
    best = dcg(ideal, k)
    return torch.where(best > 0, dcg(gains, k) / best, 0.0)
