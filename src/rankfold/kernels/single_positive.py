"""Losses with a single positive per query, as in most training steps, in few passes.

Each equals its namesake in ``LOSSES`` on a pool whose first column is the positive and whose other
columns are repeated ``times`` times; a test compares them. All scores must be finite, also those
with ``times`` 0.
"""

from __future__ import annotations

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


def softmax(positive: Tensor, scores: Tensor, times: Tensor) -> Tensor:
    """-s + log( exp s + sum_j times_j exp s_j )."""
    others: Tensor = _LogSumExp.apply(scores, times)  # type: ignore[no-untyped-call]
    return softplus(others - positive)


class _LogSumExp(torch.autograd.Function):
    """log sum_j times_j exp s_j, EMPTY_LOG_SUM if all times are 0; [B].

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


def _bpr(positive: Tensor, scores: Tensor, times: Tensor) -> Tensor:
    """The mean over others of log(1 + exp(s_j - s))."""
    return _mean(softplus(scores - positive[:, None]), times)


def _bce(positive: Tensor, scores: Tensor, times: Tensor) -> Tensor:
    """log(1 + exp(-s)) + sum over others of log(1 + exp s_j)."""
    return softplus(-positive) + (times * softplus(scores)).sum(dim=1)


def _uib(positive: Tensor, scores: Tensor, times: Tensor) -> Tensor:
    """log(1 + exp(-s)) + mean over others of log(1 + exp s_j)."""
    return softplus(-positive) + _mean(softplus(scores), times)


def _hinge(positive: Tensor, scores: Tensor, times: Tensor) -> Tensor:
    """The mean over others of [1 - s + s_j]_+."""
    return _mean((1 - positive[:, None] + scores).clamp(min=0), times)


def expected(positive: Tensor, scores: Tensor, times: Tensor) -> Tensor:
    """The mean of the others' scores minus s."""
    return _mean(scores, times) - positive


SINGLE_POSITIVE: dict[str, SinglePositiveLoss] = {
    "softmax": softmax,
    "bpr": _bpr,
    "bce": _bce,
    "uib": _uib,
    "hinge": _hinge,
    "expected": expected,
}


def _mean(values: Tensor, times: Tensor) -> Tensor:
    """The mean over columns, weighted by ``times``; 0 if all are 0; [B]."""
    return (values * times).sum(dim=1) / times.sum(dim=1).clamp(min=1)
