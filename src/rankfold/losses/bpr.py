"""The BPR loss over a pool of candidates."""

import torch
from torch import Tensor
from torch.nn.functional import softplus


def bpr_loss(
    scores: Tensor, grades: Tensor, valid: Tensor, weights: Tensor | None = None
) -> Tensor:
    """The logistic loss of each positive against each negative; [rendle2009].

    With P the valid candidates of grade > 0, V- the other valid ones, w the weights::

        cost_c = mean_{j in V-_b} log(1 + exp(s_bj - s_bc))
        loss_b = sum_{c in P_b} w_bc cost_c / sum_{c in P_b} w_bc

    Arguments as in ``softmax_loss``. Returns [B], and 0 for a query without a pair to compare.
    """
    positive, negative = (grades > 0) & valid, (grades <= 0) & valid
    safe = torch.where(valid, scores, 0.0)  # invalid scores are never read
    weight = positive.to(scores.dtype) if weights is None else torch.where(positive, weights, 0.0)
    total = weight.sum(dim=1)
    rows, columns = positive.nonzero(as_tuple=True)  # n positives: [n, C] instead of [B, C, C]
    costs = softplus(safe[rows] - safe[rows, columns, None]) * negative[rows]
    means = costs.sum(dim=1) / negative.sum(dim=1).clamp(min=1)[rows]
    cost = torch.zeros_like(safe).index_put((rows, columns), means)
    return (weight * cost).sum(dim=1) / torch.where(total > 0, total, 1.0)
