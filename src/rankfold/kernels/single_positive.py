"""Losses with a single positive per query, as in most training steps, in few passes.

Each equals its namesake in ``LOSSES`` on a pool whose first column is the positive and whose other
columns are repeated ``times`` times; a test compares them. All scores must be finite, also those
with ``times`` 0.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import softplus

_EMPTY_LOG_SUM = -1e30  # the log of an empty sum; finite, so that its gradient is 0
_MIN_SUM = 1e-30  # a smaller sum of exponentials has lost its digits

SinglePositiveLoss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""``(positive [B], scores [B, C], times [B, C]) -> [B]``; columns with ``times`` 0 do not count."""


def _softmax(positive: Tensor, scores: Tensor, times: Tensor) -> Tensor:
    """-s + log( exp s + sum_j times_j exp s_j )."""
    others: Tensor = _LogSumExp.apply(scores, times)  # type: ignore[no-untyped-call]
    return softplus(others - positive)


class _LogSumExp(torch.autograd.Function):
    """log sum_j times_j exp s_j, _EMPTY_LOG_SUM if all times are 0; [B].

    The backward pass reuses the exponentials. The largest score is subtracted first, whether it
    counts or not; rows whose sum then underflows subtract the largest score that counts. On a GPU,
    where checking that would wait, the largest score that counts is used from the start.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, times: Tensor) -> Tensor:
        if scores.is_cuda:
            scores = torch.where(times > 0, scores, _EMPTY_LOG_SUM)
        most = scores.amax(dim=1, keepdim=True)
        terms = (scores - most).exp_().mul_(times)
        total = terms.sum(dim=1, keepdim=True)
        low = None if scores.is_cuda else (total < _MIN_SUM).nonzero()[:, 0]
        if low is not None and len(low) > 0:
            counted = torch.where(times[low] > 0, scores[low], _EMPTY_LOG_SUM)
            most[low] = counted.amax(dim=1, keepdim=True)
            terms[low] = (counted - most[low]).exp_().mul_(times[low])
            total[low] = terms[low].sum(dim=1, keepdim=True)
        there = total > 0
        total = torch.where(there, total, 1.0)
        ctx.save_for_backward(terms, total)
        return torch.where(there, most + total.log(), _EMPTY_LOG_SUM)[:, 0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        terms, total = ctx.saved_tensors
        return terms * (upstream[:, None] / total), None


def _mean(values: Tensor, times: Tensor) -> Tensor:
    """The mean over columns, weighted by ``times``; 0 if all are 0; [B]."""
    return (values * times).sum(dim=1) / times.sum(dim=1).clamp(min=1)


def uib(positive: Tensor, scores: Tensor, times: Tensor, margin: float | None = None) -> Tensor:
    """phi(-s) + the mean of phi(s_j), phi as in ``losses.uib``."""

    def phi(z: Tensor) -> Tensor:
        return softplus(z) if margin is None else (z + margin).clamp(min=0)

    return phi(-positive) + _mean(phi(scores), times)


SINGLE_POSITIVE: dict[str, SinglePositiveLoss] = {
    "softmax": _softmax,
    "bpr": lambda s, others, n: _mean(softplus(others - s[:, None]), n),
    "bce": lambda s, others, n: softplus(-s) + (n * softplus(others)).sum(dim=1),
    "uib": uib,
    "hinge": lambda s, others, n: _mean((1 - s[:, None] + others).clamp(min=0), n),
    "expected": lambda s, others, n: _mean(others, n) - s,
}
