"""The RGx loss over a pool of candidates: softmax's cross-entropy to second order."""

import torch
from torch import Tensor

from rankfold.losses.sides import mean_over, split


def rgx_loss(
    scores: Tensor, grades: Tensor, valid: Tensor, weights: Tensor | None = None
) -> Tensor:
    """Softmax's cross-entropy to second order at scores of 0, up to a constant; [rg2].

    With P the valid candidates of grade > 0, V the valid ones, w the weights::

        loss_b = - sum_{c in P_b} w_bc s_bc / sum_{c in P_b} w_bc
                 + sum_{j in V_b} (s_bj + 1)^2 / (2 |V_b|) - (sum_{j in V_b} s_bj)^2 / (2 |V_b|^2)

    It is computed as follows, with m_b the mean of V_b's scores, so that a constant added to all of
    them changes nothing and loses no digits::

        loss_b = - sum_{c in P_b} w_bc (s_bc - m_b) / sum_{c in P_b} w_bc
                 + sum_{j in V_b} (s_bj - m_b)^2 / (2 |V_b|) + 1/2

    Arguments as in ``softmax_loss``. Returns [B], and 0 for a query without a valid positive of
    positive weight.
    """
    sides = split(scores, grades, valid, weights)
    centred = torch.where(valid, sides.safe - mean_over(valid, sides.safe)[:, None], 0.0)
    squares = mean_over(valid, centred**2)
    return torch.where(sides.counted, squares / 2 + 0.5 - sides.over_positives(centred), 0.0)
