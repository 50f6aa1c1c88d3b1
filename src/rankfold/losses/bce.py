"""Binary cross-entropy over a pool of candidates."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from rankfold.losses.sides import split


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
    sides = split(scores, grades, valid, weights)
    up = sides.over_positives(softplus(-sides.safe))
    down = (sides.negative * softplus(sides.safe)).sum(dim=1)
    return torch.where(sides.counted, up + down / sides.positive.sum(dim=1).clamp(min=1), 0.0)
