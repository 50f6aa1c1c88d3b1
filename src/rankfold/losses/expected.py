"""Positives' scores against the mean of the others: softmax's gradient, but not its value."""

import torch
from torch import Tensor


def expected_loss(
    scores: Tensor, grades: Tensor, valid: Tensor, weights: Tensor | None = None
) -> Tensor:
    """Mean score of the others minus that of the positives; [chen2022] with classic resampling.

    With P the valid candidates of grade > 0, V- the other valid ones, w the weights::

        loss_b = - sum_{c in P_b} w_bc s_bc / sum_{c in P_b} w_bc + mean_{j in V-_b} s_bj

    If V- holds draws from softmax(s), this has softmax's gradient on average. It is not a
    likelihood: its value has no lower bound and does not measure progress.

    Arguments as in ``softmax_loss``. Returns [B], and 0 for a query without a valid positive of
    positive weight; if V- is empty, the second term is 0.
    """
    positive, negative = (grades > 0) & valid, (grades <= 0) & valid
    safe = torch.where(valid, scores, 0.0)  # invalid scores are never read
    weight = positive.to(scores.dtype) if weights is None else torch.where(positive, weights, 0.0)
    total = weight.sum(dim=1)
    own = (weight * safe).sum(dim=1) / torch.where(total > 0, total, 1.0)
    others = (negative * safe).sum(dim=1) / negative.sum(dim=1).clamp(min=1)
    return torch.where(total > 0, others - own, 0.0)
