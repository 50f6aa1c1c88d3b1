"""Losses of one positive among others: what most training steps need, in few passes.

Each equals its namesake in ``LOSSES`` on a pool whose first column is the positive and whose other
columns are repeated as often as ``times`` says; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import softplus

OneLoss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""``(positive [B], scores [B, C], times [B, C]) -> [B]``; ``times`` 0: not read."""


def softmax(positive: Tensor, scores: Tensor, times: Tensor) -> Tensor:
    """-s + log( exp s + sum_j times_j exp s_j )."""
    logits = _present(scores, times, -torch.inf)
    if times.dtype != torch.bool:
        logits = logits + times.clamp(min=1).log()
    others = torch.logsumexp(logits, dim=1)
    return torch.where(others > -torch.inf, softplus(others - positive), 0.0)


def bpr(positive: Tensor, scores: Tensor, times: Tensor) -> Tensor:
    """The mean over others of log(1 + exp(s_j - s))."""
    return _mean(softplus(_present(scores, times, 0.0) - positive[:, None]), times)


def bce(positive: Tensor, scores: Tensor, times: Tensor) -> Tensor:
    """log(1 + exp(-s)) + sum over others of log(1 + exp s_j)."""
    return softplus(-positive) + (times * softplus(_present(scores, times, 0.0))).sum(dim=1)


def uib(positive: Tensor, scores: Tensor, times: Tensor) -> Tensor:
    """log(1 + exp(-s)) + mean over others of log(1 + exp s_j)."""
    return softplus(-positive) + _mean(softplus(_present(scores, times, 0.0)), times)


def hinge(positive: Tensor, scores: Tensor, times: Tensor) -> Tensor:
    """The mean over others of [1 - s + s_j]_+."""
    gaps = (1 - positive[:, None] + _present(scores, times, 0.0)).clamp(min=0)
    return _mean(gaps, times)


def expected(positive: Tensor, scores: Tensor, times: Tensor) -> Tensor:
    """The mean of the others' scores less s."""
    return _mean(_present(scores, times, 0.0), times) - positive


ONE_POSITIVE: dict[str, OneLoss] = {
    "softmax": softmax,
    "bpr": bpr,
    "bce": bce,
    "uib": uib,
    "hinge": hinge,
    "expected": expected,
}


def _present(scores: Tensor, times: Tensor, otherwise: float) -> Tensor:
    """The scores that count; what does not count may be anything, nan too."""
    return scores.masked_fill(times == 0, otherwise)


def _mean(values: Tensor, times: Tensor) -> Tensor:
    """Over the columns as often as they count, 0 where none does; [B]."""
    return (values * times).sum(dim=1) / times.sum(dim=1).clamp(min=1)
