"""The loss of a learned boundary between a query's positives and negatives."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from rankfold.losses.sides import mean_over, split


def uib_loss(
    scores: Tensor, grades: Tensor, valid: Tensor, weights: Tensor | None = None
) -> Tensor:
    """Logistic losses of positives above and negatives below the query's boundary; [zhuo2022].

    The boundary is already subtracted from the scores. With P the valid candidates of grade > 0,
    V- the other valid ones, w the weights, phi(z) = log(1 + exp z)::

        loss_b = sum_{c in P_b} w_bc phi(-s_bc) / sum_{c in P_b} w_bc + mean_{j in V-_b} phi(s_bj)

    Arguments as in ``softmax_loss``. Returns [B], and 0 for a query without a valid positive of
    positive weight; if V- is empty, the second term is 0.
    """
    sides = split(scores, grades, valid, weights)
    above = sides.over_positives(softplus(-sides.safe))
    below = mean_over(sides.negative, softplus(sides.safe))
    return torch.where(sides.counted, above + below, 0.0)
