"""Losses over all candidates that never hold the B x N scores.

With o_bj = p_b . q_j for all N candidates and I_b the positives of query b, each is

    loss_b = V(o_b) - mean_{c in I_b} o_bc,    0 for a query without positives

where the mean is weighted by the grades of positives, if there are any. The losses differ in V,
which holds the scores down. Softmax and sparsemax go through blocks of scores. RG2 and RGx are
quadratic in the scores and only need Q^T Q and Q^T 1 of the candidates.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from rankfold.kernels.softmax import log_sum_exp
from rankfold.kernels.sparsemax import sparsemax_value
from rankfold.types import FullLoss, Interactions


def _full_loss(
    value: Callable[[Tensor, Tensor], Tensor],
    queries: Tensor,
    candidates: Tensor,
    positives: Interactions,
) -> Tensor:
    """V(o_b) minus the mean score of the positives; [B], and 0 for a query without any."""
    rows = positives.query_of_pair().long()
    left, right = queries.index_select(0, rows), candidates.index_select(0, positives.candidates)
    scores = (left * right).sum(dim=1)  # float32 even under autocast
    zeros = scores.new_zeros(len(queries))
    grades = positives.grades
    weights = torch.ones_like(scores) if grades is None else grades.to(scores)
    total = zeros.index_add(0, rows, weights)
    means = zeros.index_add(0, rows, weights * scores) / torch.where(total > 0, total, 1.0)
    return torch.where(positives.counts() > 0, value(queries, candidates) - means, 0.0)


def _rg2_value(queries: Tensor, candidates: Tensor) -> Tensor:
    """1/(2N) sum_j (o_bj + 1)^2 = (p^T G p + 2 p . h + N) / 2N, G = Q^T Q, h = Q^T 1; [B]."""
    quadratic = (queries @ (candidates.T @ candidates) * queries).sum(dim=1)
    linear = queries @ candidates.sum(dim=0)
    return (quadratic + 2 * linear) / (2 * len(candidates)) + 0.5


def _rgx_loss(queries: Tensor, candidates: Tensor, positives: Interactions) -> Tensor:
    """RG2 minus 1/(2 N^2) (sum_j o_bj)^2; [B].

    It is RG2 of the scores less their mean, so of the candidates less theirs. Computed in this way,
    a constant in all scores of a query loses no digits.
    """
    return _full_loss(_rg2_value, queries, candidates - candidates.mean(dim=0), positives)


FULL_LOSSES: dict[str, FullLoss] = {
    "softmax": partial(_full_loss, log_sum_exp),
    "sparsemax": partial(_full_loss, sparsemax_value),
    "rg2": partial(_full_loss, _rg2_value),
    "rgx": _rgx_loss,
}
