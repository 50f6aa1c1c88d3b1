"""The hinge ranking loss over a pool of candidates."""

import torch
from torch import Tensor


def hinge_loss(
    scores: Tensor, grades: Tensor, valid: Tensor, weights: Tensor | None = None
) -> Tensor:
    """Mean violation of a margin of 1 over all pairs (positive, negative) of a query.

    With P the valid candidates of grade > 0, V- the other valid ones, w the weights::

        loss_b = sum_{c in P_b} w_bc mean_{j in V-_b} [1 - s_bc + s_bj]_+ / sum_{c in P_b} w_bc

    Arguments as in ``softmax_loss``. Returns [B], and 0 for a query without a pair to compare.
    """
    positive, negative = (grades > 0) & valid, (grades <= 0) & valid
    safe = torch.where(valid, scores, 0.0)  # invalid scores are never read
    weight = positive.to(scores.dtype) if weights is None else torch.where(positive, weights, 0.0)
    total = weight.sum(dim=1)
    rows, columns = positive.nonzero(as_tuple=True)  # n positives: [n, C] instead of [B, C, C]
    gaps = (1 - safe[rows, columns, None] + safe[rows]).clamp(min=0) * negative[rows]
    means = gaps.sum(dim=1) / negative.sum(dim=1).clamp(min=1)[rows]
    cost = torch.zeros_like(safe).index_put((rows, columns), means)
    return (weight * cost).sum(dim=1) / torch.where(total > 0, total, 1.0)
