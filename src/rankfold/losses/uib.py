"""The loss of a learned boundary between a query's positives and negatives."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from rankfold.losses.sides import mean_over, split


def uib_loss(
    scores: Tensor,
    grades: Tensor,
    valid: Tensor,
    weights: Tensor | None = None,
    margin: float | None = None,
) -> Tensor:
    """Losses of positives below and negatives above the query's boundary; [zhuo2022].

    The boundary is already subtracted from the scores. With P the valid candidates of grade > 0,
    V- the other valid ones, w the weights::

        loss_b = sum_{c in P_b} w_bc phi(-s_bc) / sum_{c in P_b} w_bc + mean_{j in V-_b} phi(s_bj)

    with phi(z) = log(1 + exp z), or [z + margin]_+ with a margin.

    Arguments as in ``softmax_loss``. Returns [B], and 0 for a query without a valid positive of
    positive weight; if V- is empty, the second term is 0.
    """
    sides = split(scores, grades, valid, weights)

    def phi(z: Tensor) -> Tensor:
        return softplus(z) if margin is None else (z + margin).clamp(min=0)

    above = sides.over_positives(phi(-sides.safe))
    below = mean_over(sides.negative, phi(sides.safe))
    return torch.where(sides.counted, above + below, 0.0)
