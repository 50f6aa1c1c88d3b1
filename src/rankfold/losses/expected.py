"""Positives' scores against the mean of the others: softmax's gradient, but not its value."""

import torch
from torch import Tensor

from rankfold.losses.sides import mean_over, split


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
    sides = split(scores, grades, valid, weights)
    others = mean_over(sides.negative, sides.safe)
    return torch.where(sides.counted, others - sides.over_positives(sides.safe), 0.0)
