"""The sparsemax loss over a pool of candidates: candidates far below the best cost nothing."""

import torch
from torch import Tensor

from rankfold.losses.sides import split


def sparsemax_loss(
    scores: Tensor, grades: Tensor, valid: Tensor, weights: Tensor | None = None
) -> Tensor:
    """The counterpart of cross-entropy for the projection onto the simplex; [martins2016].

    With P the valid candidates of grade > 0, V the valid ones, w the weights, tau_b the number with
    sum_{j in V_b} [s_bj - tau_b]_+ = 1, S_b = { j in V_b : s_bj > tau_b }::

        cost_c = 1/2 sum_{j in S_b} (s_bj^2 - tau_b^2) + 1/2 - s_bc
        loss_b = sum_{c in P_b} w_bc cost_c / sum_{c in P_b} w_bc

    cost_c >= 0 does not change when a constant is added to all scores, and is 0 if c is 1 above all
    others. Its gradient is sparsemax(s) - e_c with sparsemax(s)_j = [s_j - tau]_+.

    Arguments as in ``softmax_loss``. Returns [B], and 0 for a query without a valid positive of
    positive weight.
    """
    sides = split(scores, grades, valid, weights)
    best = scores.detach().masked_fill(~valid, -torch.inf).amax(dim=1, keepdim=True)
    # with the best at 0, tau >= -1: invalid candidates at -1 are outside, and squares stay small
    shifted = torch.where(valid, scores - best, -1.0)
    half = 0.5 * _support_sum(shifted) + 0.5
    return torch.where(sides.counted, half - sides.over_positives(shifted), 0.0)


def _support_sum(scores: Tensor) -> Tensor:
    """sum_{j in S} (s_j^2 - tau^2) of each row, exact; [B].

    S holds the k best, k the last place with 1 + k s_(k) > s_(1) + ... + s_(k).
    """
    ordered = scores.sort(dim=1, descending=True).values
    place = torch.arange(1, scores.shape[1] + 1, device=scores.device)
    inside = 1 + place * ordered > ordered.cumsum(dim=1)
    inner = torch.where(inside, ordered, 0.0).sum(dim=1, keepdim=True)
    tau = (inner - 1) / inside.sum(dim=1, keepdim=True)
    return torch.where(inside, ordered**2 - tau**2, 0.0).sum(dim=1)
