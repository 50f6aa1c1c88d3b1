"""The WARP loss over a pool: a hinge that counts more the lower the positive ranks."""

import torch
from torch import Tensor

from rankfold.losses.sides import split


def warp_loss(
    scores: Tensor, grades: Tensor, valid: Tensor, weights: Tensor | None = None
) -> Tensor:
    """Mean violation of a margin of 1, times the harmonic number of violations; [weston2011].

    With P the valid candidates of grade > 0, V- the other valid ones, w the weights::

        r_bc   = |{ j in V-_b : s_bj > s_bc - 1 }|,  Phi(r) = 1 + 1/2 + ... + 1/r,  Phi(0) = 0
        cost_c = Phi(r_bc) / r_bc  sum_{j in V-_b} [1 - s_bc + s_bj]_+,  and 0 where r_bc = 0
        loss_b = sum_{c in P_b} w_bc cost_c / sum_{c in P_b} w_bc

    The count r is a constant to the gradient.

    Departs from the paper: it draws negatives until one violates, and estimates r from the number
    of draws; here r is counted over the pool.

    Arguments as in ``softmax_loss``. Returns [B], and 0 for a query without a pair to compare.
    """
    n = torch.arange(scores.shape[1], dtype=scores.dtype, device=scores.device)
    harmonic = torch.where(n > 0, 1 / n.clamp(min=1), 0.0).cumsum(dim=0)  # Phi(0) .. Phi(C - 1)

    def cost(own: Tensor, pool: Tensor, negative: Tensor) -> Tensor:
        gaps = (1 - own + pool).clamp(min=0) * negative
        count = (gaps > 0).sum(dim=1)
        return harmonic[count] * gaps.sum(dim=1) / count.clamp(min=1)

    return split(scores, grades, valid, weights).over_pairs(cost)
