"""A pairwise loss with the negatives around the tolerated false-positive rate."""

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

_MIN_NEGATIVES = 150  # within the default sigma, if there are so many
_MAX_SIGMA = 0.35  # of the default; about the paper's sigma


def low_fpr_loss(
    scores: Tensor, grades: Tensor, valid: Tensor, weights: Tensor | None = None
) -> Tensor:
    """The logistic loss of each positive against weighted negatives; [cba], Eq. 7.

    With P the valid candidates of grade > 0, V- the other valid ones, w the weights of V-::

        p_j = w_bj / sum_{i in V-_b} w_bi
        loss_b = 1/|P_b| sum_{c in P_b} sum_{j in V-_b} p_j log(1 + exp(s_bj - s_bc))

    Arguments as in ``softmax_loss``. Without weights this is ``bpr_loss``. Returns [B], and 0 for a
    query without a pair to compare.
    """
    positive, negative = (grades > 0) & valid, (grades <= 0) & valid
    safe = torch.where(valid, scores, 0.0)  # invalid scores are never read
    p = negative.to(scores.dtype) if weights is None else torch.where(negative, weights, 0.0)
    total = p.sum(dim=1, keepdim=True)
    p = p / torch.where(total > 0, total, 1.0)
    costs = softplus(safe.unsqueeze(1) - safe.unsqueeze(2))  # [B, C positives, C negatives]
    means = (costs @ p.unsqueeze(2)).squeeze(2)
    return torch.where(positive, means, 0.0).sum(dim=1) / positive.sum(dim=1).clamp(min=1)


def rank_weights(ranks: Tensor, negative: Tensor, fpr: float, sigma: float) -> Tensor:
    """The weight of each negative: a Gaussian around the tolerated rate; [cba].

    With R the share of negatives above::

        p_j prop. exp(-(R_j - fpr)^2 / (2 sigma^2)),    sum_j p_j = 1

    For a small sigma only the negatives nearest to the rate count; for a large one all count
    equally. Any sigma above 0 works, even if its square is 0 or infinite in single precision.

    Args:
        ranks: R, [T, B].
        negative: which rows are negatives, [T, B]; the others get 0.
        fpr: the tolerated rate.
        sigma: the width of the Gaussian.
    """
    away = ((ranks - fpr).double() ** 2).masked_fill(~negative, torch.inf)
    further = away - away.amin(dim=1, keepdim=True)  # the nearest has 0, whatever sigma
    exponents = -further / sigma / sigma / 2  # in two steps: sigma^2 may be 0 or infinite
    weights = torch.where(negative, exponents.softmax(dim=1), 0.0)
    return weights.to(ranks.dtype)


def default_sigma(n_negatives: int, fpr: float) -> float:
    """Twice the rate, or wider, so that enough of the negatives count.

    With a Gaussian over a handful of rows, a model would memorise these rows.
    """
    return max(2 * fpr, min(_MAX_SIGMA, _MIN_NEGATIVES / max(n_negatives, 1)))


# ------------------------------------------------------------------------------- over all rows


def above(grades: Tensor, n_grades: int) -> Tensor:
    """Which rows are positive at each threshold k: those of grade > k; [G - 1, n] bool."""
    return grades > torch.arange(n_grades - 1, device=grades.device)[:, None]


def exact_ranks(scores: Tensor, negative: Tensor) -> Tensor:
    """R of every row: the share of the negatives that score higher; [n].

    0 where there are no negatives.
    """
    ordered = scores[negative].sort().values
    higher = len(ordered) - torch.searchsorted(ordered, scores.contiguous(), right=True)
    return higher.to(scores.dtype) / max(len(ordered), 1)


def exact_risk(scores: Tensor, positive: Tensor, fpr: float) -> Tensor:
    """The risk at one threshold that CBA minimises; [cba], Eq. 5.

    mean over positives of log(1 + exp(s_fpr - s+)), s_fpr the ceil(fpr |D-|)-th highest negative.
    0 where a side is empty.
    """
    negatives = scores[~positive]
    if len(negatives) == 0 or not bool(positive.any()):
        return scores.new_zeros(())
    place = max(1, math.ceil(round(fpr * len(negatives), 9)))
    cut = negatives.topk(place).values[-1]
    return softplus(cut - scores[positive]).mean()


def surrogate_risk(
    scores: Tensor, grades: Tensor, n_grades: int, fpr: float, sigma: float
) -> Tensor:
    """``low_fpr_loss`` of all rows with exact ranks, the mean over thresholds: the reference."""
    positive = above(grades, n_grades)
    ranks = torch.stack([exact_ranks(scores.detach(), ~side) for side in positive])
    weights = rank_weights(ranks, ~positive, fpr, sigma)
    pool = scores.expand(len(positive), -1)
    return low_fpr_loss(pool, positive, torch.ones_like(positive), weights).mean()
