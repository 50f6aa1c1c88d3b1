"""Corrections of sampling bias: functions of scores and sampling probabilities.

docs/concepts/negatives.md explains what a model learns under each.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from rankfold.types import Pool

Correction = Callable[[Tensor, Tensor, Pool], tuple[Tensor, Tensor]]
"""``(positive [B], scores [B, C], pool) -> (positive, scores)``, for a whole pool."""

ResampledCorrection = Callable[[Tensor, Tensor, int], Tensor]
"""``(scores [B, C], weights [B, C], draws) -> scores``, for picks; the positive's is unchanged."""


def _negatives_corrected(positive: Tensor, scores: Tensor, pool: Pool) -> tuple[Tensor, Tensor]:
    """Sampled softmax: the C columns stand for all N candidates, the positive for itself.

    s_j - log(C q_j), so that sum_j exp(s_j)/(C q_j) has the mean sum_y exp(s_y).

    Departs from the paper: [rg2], Eq. 9, subtracts nothing for uniform q; it is log(C/N).
    """
    return positive, scores - pool.log_q - math.log(scores.shape[1])


def _all_corrected(positive: Tensor, scores: Tensor, pool: Pool) -> tuple[Tensor, Tensor]:
    """Every logit is s - log q, the positive's too: SSL-Pop, MNS, G-Tower."""
    return positive - pool.positive_log_q, scores - pool.log_q


def appendix(scores: Tensor, weights: Tensor, draws: int) -> Tensor:
    """The m = ``draws`` picks have s - log(m w), as in the appendix of [chen2022].

    Columns of weight 0 are never picked, and not read.
    """
    return scores - (draws * weights).clamp(min=torch.finfo(weights.dtype).tiny).log()


CORRECTIONS: dict[str, Correction] = {
    "none": lambda positive, scores, _pool: (positive, scores),  # SSL of [chen2022]
    "negatives": _negatives_corrected,
    "all": _all_corrected,
}

RESAMPLED: dict[str, ResampledCorrection] = {
    "released": lambda scores, _weights, _draws: scores,  # the code of the authors of [chen2022]
    "appendix": appendix,
    "sir": lambda scores, _weights, _draws: scores,  # averaged by the expected loss, not a softmax
}
