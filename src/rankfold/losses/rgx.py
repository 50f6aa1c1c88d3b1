"""The RGx loss over a pool of candidates: softmax's cross-entropy to second order."""

import torch
from torch import Tensor

from rankfold.losses.rg2 import rg2_loss


def rgx_loss(
    scores: Tensor, grades: Tensor, valid: Tensor, weights: Tensor | None = None
) -> Tensor:
    """Softmax's cross-entropy to second order at scores of 0, up to a constant; [rg2].

    With P the valid candidates of grade > 0, V the valid ones, w the weights::

        loss_b = - sum_{c in P_b} w_bc s_bc / sum_{c in P_b} w_bc
                 + sum_{j in V_b} (s_bj + 1)^2 / (2 |V_b|) - (sum_{j in V_b} s_bj)^2 / (2 |V_b|^2)

    It is RG2 of the scores less their mean over V_b. Computed in this way, a constant added to all
    of them changes nothing and loses no digits.

    Arguments as in ``softmax_loss``. Returns [B], and 0 for a query without a valid positive of
    positive weight.
    """
    safe = torch.where(valid, scores, 0.0)  # invalid scores are never read
    mean = safe.sum(dim=1, keepdim=True) / valid.sum(dim=1, keepdim=True).clamp(min=1)
    return rg2_loss(safe - mean, grades, valid, weights)
