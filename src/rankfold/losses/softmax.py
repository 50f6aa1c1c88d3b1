"""The softmax ranking loss over a pool of candidates."""

import torch
from torch import Tensor

from rankfold.losses.sides import split


def softmax_loss(
    scores: Tensor, grades: Tensor, valid: Tensor, weights: Tensor | None = None
) -> Tensor:
    """Cross-entropy of each query's positives against its pool; [bruch2019], Eq. 2.

    With P the valid candidates of grade > 0, V the valid ones, w the weights::

        loss_b = - sum_{c in P_b} w_bc ( s_bc - log sum_{j in V_b} exp s_bj ) / sum_{c in P_b} w_bc

    Args:
        scores: [B, C], higher is better.
        grades: [B, C], 0 for a negative.
        valid: [B, C] bool, False for padding and other columns that must not be read.
        weights: [B, C] >= 0, the weight of each positive; None: all 1.

    Returns:
        [B], and 0 for a query without a valid positive of positive weight.
    """
    logits = scores.masked_fill(~valid, -torch.inf)
    sides = split(scores, grades, valid, weights)
    # a pool without a valid candidate has log-sum-exp -inf, whose gradient is nan
    anything = valid.any(dim=1, keepdim=True)
    log_z = torch.where(anything, logits, 0.0).logsumexp(dim=1, keepdim=True)
    return -sides.over_positives(torch.where(sides.positive, logits - log_z, 0.0))
