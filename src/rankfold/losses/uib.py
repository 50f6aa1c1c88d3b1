"""The loss of a learned boundary between a query's positives and negatives."""

import torch
from torch import Tensor
from torch.nn.functional import softplus


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
    positive, negative = (grades > 0) & valid, (grades <= 0) & valid
    safe = torch.where(valid, scores, 0.0)  # invalid scores are never read
    weight = positive.to(scores.dtype) if weights is None else torch.where(positive, weights, 0.0)
    total = weight.sum(dim=1)

    def phi(z: Tensor) -> Tensor:
        return softplus(z) if margin is None else (z + margin).clamp(min=0)

    above = (weight * phi(-safe)).sum(dim=1) / torch.where(total > 0, total, 1.0)
    below = (negative * phi(safe)).sum(dim=1) / negative.sum(dim=1).clamp(min=1)
    return torch.where(total > 0, above + below, 0.0)
