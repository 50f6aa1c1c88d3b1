"""Decoupled softmax: the positives of a query do not compete with each other."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from rankfold.losses.sides import split


def decoupled_softmax_loss(
    scores: Tensor, grades: Tensor, valid: Tensor, weights: Tensor | None = None
) -> Tensor:
    """Cross-entropy of each positive against the negatives only.

    With P the valid candidates of grade > 0, V- the other valid ones, w the weights::

        loss_b = sum_{c in P_b} w_bc log(1 + sum_{j in V-_b} exp(s_bj - s_bc)) / sum_{c in P_b} w_bc

    With one positive this is ``softmax_loss``. With several, no positive pushes another down.

    Arguments as in ``softmax_loss``. Returns [B], and 0 for a query without a valid positive of
    positive weight.
    """
    positive, negative, _, weight = split(scores, grades, valid, weights)
    total, rivals = weight.sum(dim=1), negative.any(dim=1)
    # without a rival the log-sum-exp is -inf, whose gradient is nan
    safe = torch.where(rivals[:, None], scores.masked_fill(~negative, -torch.inf), 0.0)
    log_z = torch.where(rivals, safe.logsumexp(dim=1), -torch.inf)
    rows, columns = positive.nonzero(as_tuple=True)  # positives are few
    each = softplus(log_z[rows] - scores[rows, columns]) * weight[rows, columns]
    sums = torch.zeros_like(total).index_add(0, rows, each)
    return sums / torch.where(total > 0, total, 1.0)
