"""The RG2 loss over a pool of candidates: softmax's cross-entropy made quadratic."""

import torch
from torch import Tensor


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
    positive = (grades > 0) & valid
    safe = torch.where(valid, scores, 0.0)  # invalid scores are never read
    weight = positive.to(scores.dtype) if weights is None else torch.where(positive, weights, 0.0)
    total = weight.sum(dim=1)
    own = (weight * safe).sum(dim=1) / torch.where(total > 0, total, 1.0)
    squares = (valid * (safe + 1) ** 2).sum(dim=1) / valid.sum(dim=1).clamp(min=1)
    return torch.where(total > 0, squares / 2 - own, 0.0)
