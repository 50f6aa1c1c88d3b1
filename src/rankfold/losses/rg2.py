"""The RG2 loss over a pool of candidates: softmax's cross-entropy made quadratic."""

import torch
from torch import Tensor

from rankfold.losses.sides import mean_over, split


def rg2_loss(
    scores: Tensor, grades: Tensor, valid: Tensor, weights: Tensor | None = None
) -> Tensor:
    """A quadratic approximation of softmax's cross-entropy for small scores; [rg2].

    With P the valid candidates of grade > 0, V the valid ones, w the weights::

        loss_b = - sum_{c in P_b} w_bc s_bc / sum_{c in P_b} w_bc
                 + sum_{j in V_b} (s_bj + 1)^2 / (2 |V_b|)

    Arguments as in ``softmax_loss``. Returns [B], and 0 for a query without a valid positive of
    positive weight.
    """
    sides = split(scores, grades, valid, weights)
    squares = mean_over(valid, (sides.safe + 1) ** 2)
    return torch.where(sides.counted, squares / 2 - sides.over_positives(sides.safe), 0.0)
