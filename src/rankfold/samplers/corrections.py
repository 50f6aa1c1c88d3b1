"""What sampling does to scores, undone: functions of scores and of how likely each was sampled.

docs/concepts/negatives.md says what a model learns under each.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from rankfold.types import Pool

Correction = Callable[[Tensor, Tensor, Pool], tuple[Tensor, Tensor]]
"""``(positive [B], scores [B, C], pool) -> (positive, scores)``, of a pool that is taken whole."""

ResampledCorrection = Callable[[Tensor, Tensor, int], Tensor]
"""``(scores [B, C], weights [B, C], draws) -> scores``, of picks; the positive's score stays."""


def uncorrected(positive: Tensor, scores: Tensor, pool: Pool) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """The scores as they are: SSL of [chen2022]."""
    return positive, scores


def negatives_corrected(positive: Tensor, scores: Tensor, pool: Pool) -> tuple[Tensor, Tensor]:
    """Sampled softmax: the C columns stand for all N candidates, the positive for itself.

    s_j - log(C q_j), so that sum_j exp(s_j)/(C q_j) has the mean sum_y exp(s_y).

    Departs from the paper: [rg2], Eq. 9, subtracts nothing for uniform q; it is log(C/N).
    """
    return positive, scores - pool.log_q - math.log(scores.shape[1])


def all_corrected(positive: Tensor, scores: Tensor, pool: Pool) -> tuple[Tensor, Tensor]:
    """Every logit is s - log q, the positive's too: SSL-Pop, MNS, G-Tower."""
    return positive - pool.positive_log_q, scores - pool.log_q


def released(scores: Tensor, weights: Tensor, draws: int) -> Tensor:  # noqa: ARG001
    """The picks' scores as they are, as in the code that the authors of [chen2022] released."""
    return scores


def appendix(scores: Tensor, weights: Tensor, draws: int) -> Tensor:
    """The m = ``draws`` picks have s - log(m w), as in the appendix of [chen2022].

    What has no weight was not picked, and is not read.
    """
    return scores - (draws * weights).clamp(min=torch.finfo(weights.dtype).tiny).log()


def sir(scores: Tensor, weights: Tensor, draws: int) -> Tensor:  # noqa: ARG001
    """The picks' scores as they are, to be averaged by the expected loss, not by a softmax."""
    return scores


CORRECTIONS: dict[str, Correction] = {
    "none": uncorrected,
    "negatives": negatives_corrected,
    "all": all_corrected,
}

RESAMPLED: dict[str, ResampledCorrection] = {
    "released": released,
    "appendix": appendix,
    "sir": sir,
}
