"""Binary cross-entropy over a pool of candidates."""

import torch
from torch import Tensor
from torch.nn.functional import softplus


def bce_loss(
    scores: Tensor, grades: Tensor, valid: Tensor, weights: Tensor | None = None
) -> Tensor:
    """Binary cross-entropy of each candidate, per positive.

    With P the valid candidates of grade > 0, V- the other valid ones, w the weights::

        loss_b = sum_{c in P_b} w_bc ( log(1 + exp(-s_bc)) + n_b ) / sum_{c in P_b} w_bc
        n_b    = sum_{j in V-_b} log(1 + exp(s_bj)) / |P_b|

    Every positive has the same share n_b of the negatives, whatever its weight.

    Arguments as in ``softmax_loss``. Returns [B], and 0 for a query without a valid positive of
    positive weight.
    """
    positive, negative = (grades > 0) & valid, (grades <= 0) & valid
    safe = torch.where(valid, scores, 0.0)  # invalid scores are never read
    weight = positive.to(scores.dtype) if weights is None else torch.where(positive, weights, 0.0)
    total = weight.sum(dim=1)
    up = (weight * softplus(-safe)).sum(dim=1) / torch.where(total > 0, total, 1.0)
    down = (negative * softplus(safe)).sum(dim=1) / positive.sum(dim=1).clamp(min=1)
    return torch.where(total > 0, up + down, 0.0)
