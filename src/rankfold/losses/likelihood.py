"""The likelihood loss of SiameseXML, where a cosine gives the probability of a pair."""

import torch
from torch import Tensor

from rankfold.losses.sides import split


def likelihood_loss(
    scores: Tensor,
    grades: Tensor,
    valid: Tensor,
    weights: Tensor | None = None,
    *,
    c: float = 0.9,
    d: float = 1.5,
) -> Tensor:
    """The negative log-likelihood of positives and negatives; [siamesexml], Eq. 2.

    Scores are cosines v, and a pair is positive with probability p(v) = c exp(d (v - 1)). With P
    the valid candidates of grade > 0, V- the other valid ones, w the weights::

        loss_b = sum_{j in P_b} w_bj ( -log p(s_bj) + n_b ) / sum_{j in P_b} w_bj
        n_b    = sum_{j in V-_b} -log(1 - p(s_bj)) / |P_b|

    Every positive has the same share n_b of the negatives, whatever its weight. The paper uses
    c = .9, d = 1.5 for the encoder and c = .75, d = 3 for the classifiers.

    Arguments as in ``softmax_loss``; scores above 1 count as 1. Returns [B], and 0 for a query
    without a valid positive of positive weight.
    """
    sides = split(scores, grades, valid, weights)
    log_p = d * (sides.safe.clamp(max=1) - 1) + torch.log(scores.new_tensor(c))
    down = -(sides.negative * torch.log1p(-log_p.exp())).sum(dim=1)
    up = -sides.over_positives(log_p)
    return torch.where(sides.counted, up + down / sides.positive.sum(dim=1).clamp(min=1), 0.0)
