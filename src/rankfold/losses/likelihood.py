"""The likelihood loss of SiameseXML, where a cosine gives the probability of a pair."""

import torch
from torch import Tensor


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
    positive, negative = (grades > 0) & valid, (grades <= 0) & valid
    safe = torch.where(valid, scores, 0.0).clamp(max=1)  # invalid scores are never read
    weight = positive.to(scores.dtype) if weights is None else torch.where(positive, weights, 0.0)
    total = weight.sum(dim=1)
    log_p = d * (safe - 1) + torch.log(safe.new_tensor(c))
    up = -(weight * log_p).sum(dim=1) / torch.where(total > 0, total, 1.0)
    down = -(negative * torch.log1p(-log_p.exp())).sum(dim=1) / positive.sum(dim=1).clamp(min=1)
    return torch.where(total > 0, up + down, 0.0)
