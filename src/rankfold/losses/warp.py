"""The WARP loss over a pool: a hinge that counts more the lower the positive ranks."""

import torch
from torch import Tensor


def warp_loss(
    scores: Tensor, grades: Tensor, valid: Tensor, weights: Tensor | None = None
) -> Tensor:
    """Mean violation of a margin of 1, times the harmonic number of violations; [weston2011].

    With P the valid candidates of grade > 0, V- the other valid ones, w the weights::

        r_bc   = |{ j in V-_b : s_bj > s_bc - 1 }|,  Phi(r) = 1 + 1/2 + ... + 1/r,  Phi(0) = 0
        cost_c = Phi(r_bc) / r_bc  sum_{j in V-_b} [1 - s_bc + s_bj]_+,  and 0 where r_bc = 0
        loss_b = sum_{c in P_b} w_bc cost_c / sum_{c in P_b} w_bc

    The count r is a constant to the gradient.

    Departs from the paper: it draws negatives until one violates, and estimates r from the number
    of draws; here r is counted over the pool.

    Arguments as in ``softmax_loss``. Returns [B], and 0 for a query without a pair to compare.
    """
    positive, negative = (grades > 0) & valid, (grades <= 0) & valid
    safe = torch.where(valid, scores, 0.0)  # invalid scores are never read
    weight = positive.to(scores.dtype) if weights is None else torch.where(positive, weights, 0.0)
    total = weight.sum(dim=1)
    rows, columns = positive.nonzero(as_tuple=True)  # n positives: [n, C] instead of [B, C, C]
    gaps = (1 - safe[rows, columns, None] + safe[rows]).clamp(min=0) * negative[rows]
    count = (gaps > 0).sum(dim=1)
    means = _harmonic(scores)[count] * gaps.sum(dim=1) / count.clamp(min=1)
    cost = torch.zeros_like(safe).index_put((rows, columns), means)
    return (weight * cost).sum(dim=1) / torch.where(total > 0, total, 1.0)


def _harmonic(like: Tensor) -> Tensor:
    """Phi(0), ..., Phi(C - 1), as a positive has fewer than C negatives; [C]."""
    n = torch.arange(like.shape[1], dtype=like.dtype, device=like.device)
    return torch.where(n > 0, 1 / n.clamp(min=1), 0.0).cumsum(dim=0)
