"""The value whose gradient is sparsemax of a query's scores, without holding the B x N scores.

Sparsemax is the point of the simplex nearest to the scores: p_j = [s_j - tau]_+ with the threshold
tau at which they sum to 1; [martins2016]. ``sparsemax_value_plain`` finds tau by sorting all
scores; ``sparsemax_value`` finds it from blocks of scores, in two stages:

1. One pass over the blocks keeps the TOP_SCORES largest scores of each query. Usually few scores
   are above tau: if fewer than are kept, tau is that of the kept ones.
2. Other queries continue by Newton steps, each one a pass over all their scores: with
   f(tau) = sum_j [s_j - tau]_+ and k the number of scores above tau, tau += (f(tau) - 1) / k. As f
   is convex, decreasing and piecewise linear, the steps from a tau that is too low (here that of
   some of the scores) never overshoot and end at the exact tau: Michelot's algorithm. Equal
   scores, as at the start of training, need two passes, others a handful.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rankfold.kernels.softmax import gradients, score_blocks, wide

TOP_SCORES = 16  # per query; keeping more takes longer than the steps it saves


def sparsemax_value_plain(queries: Tensor, candidates: Tensor) -> Tensor:
    """1/2 sum_{j: s_j > tau} (s_j^2 - tau^2) + 1/2 with s_j = p_b . q_j, by sorting them; [B]."""
    scores = queries @ candidates.T
    tau = _threshold(scores.sort(dim=1, descending=True).values)[0].unsqueeze(1)
    return (torch.where(scores > tau, scores**2 - tau**2, 0).sum(dim=1) + 1) / 2


def sparsemax_value(queries: Tensor, candidates: Tensor, block_bytes: int | None = None) -> Tensor:
    """``sparsemax_value_plain`` in O(B) memory plus a block, beside the gradients; [B].

    Differentiable once, in both arguments.

    Args:
        queries: [B, D].
        candidates: [N, D], at least one.
        block_bytes: of a block of scores; None: the fastest.
    """
    value: Tensor = _SparsemaxValue.apply(queries, candidates, block_bytes)  # type: ignore[no-untyped-call]
    return value


class _SparsemaxValue(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, candidates: Tensor, block_bytes: int | None) -> Tensor:
        """Scores minus the largest of their query, so that large ones lose no digits.

        With p the sparsemax, 1/2 sum_{s > tau} (s^2 - tau^2) = tau sum p + 1/2 sum p^2, sum p = 1.
        """
        best = _largest(queries, candidates, block_bytes)
        most = best[:, 0].clone()
        best -= most.unsqueeze(1)
        tau, size = _threshold(best)
        squares = (best - tau.unsqueeze(1)).clamp_(min=0).square().sum(dim=1)
        left = (size == best.shape[1]).nonzero().squeeze(1)
        if best.shape[1] == len(candidates):
            left = left[:0]  # all scores were kept
        smallest_step = torch.finfo(tau.dtype).eps
        while len(left):
            total, size, squares[left] = _above(
                queries[left], candidates, most[left], tau[left], block_bytes
            )
            step = ((total - 1) / size.clamp(min=1)).to(tau.dtype)
            continues = step > smallest_step
            left = left[continues]
            tau[left] += step[continues]
        ctx.save_for_backward(queries, candidates, most, tau)
        ctx.block_bytes = block_bytes
        return (most + (tau + (squares + 1) / 2)).to(queries.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        queries, candidates, most, tau = ctx.saved_tensors

        def sparsemax(rows: slice, scores: Tensor) -> Tensor:
            return _excess(scores, most[rows], tau[rows])

        wanted = ctx.needs_input_grad[0], ctx.needs_input_grad[1]
        return *gradients(sparsemax, upstream, queries, candidates, wanted, ctx.block_bytes), None


def _largest(queries: Tensor, candidates: Tensor, block_bytes: int | None) -> Tensor:
    """The largest scores of each query, descending; [B, min(TOP_SCORES, N)]."""
    kept = min(TOP_SCORES, len(candidates))
    best = wide(queries).new_full((len(queries), kept), -torch.inf)
    for rows, _, scores in score_blocks(queries, candidates, block_bytes):
        fresh = scores.topk(min(kept, scores.shape[1]), dim=1).values
        best[rows] = torch.cat([best[rows], fresh], dim=1).topk(kept, dim=1).values
    return best


def _threshold(descending: Tensor) -> tuple[Tensor, Tensor]:
    """The tau of each row of scores [B, n], and how many scores k are above it; two of [B].

    k is the largest number with the k-th score above tau_k = ((sum of the first k scores) - 1) / k.

    """
    largest = descending[:, :1]
    shifted = descending.double() - largest  # to sum small numbers
    ranks = torch.arange(1, descending.shape[1] + 1, device=descending.device)
    taus = (shifted.cumsum(dim=1) - 1) / ranks
    size = (shifted > taus).sum(dim=1)
    tau = taus.gather(1, size.unsqueeze(1) - 1) + largest
    return tau.squeeze(1).to(descending.dtype), size


def _above(
    queries: Tensor, candidates: Tensor, most: Tensor, tau: Tensor, block_bytes: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The sum, count and sum of squares of the positive excess over tau; three of [B]."""
    total = torch.zeros_like(tau, dtype=torch.float64)  # a sum over hundreds of blocks
    size, squares = torch.zeros_like(total), torch.zeros_like(total)
    for rows, _, scores in score_blocks(queries, candidates, block_bytes):
        excess = _excess(scores, most[rows], tau[rows])
        total[rows] += excess.sum(dim=1)
        size[rows] += excess.count_nonzero(dim=1)
        squares[rows] += excess.square_().sum(dim=1)
    return total, size, squares.to(tau.dtype)


def _excess(scores: Tensor, most: Tensor, tau: Tensor) -> Tensor:
    """[s - most - tau]_+, in place; ``most`` is subtracted first, which loses no digit near it."""
    return scores.sub_(most.unsqueeze(1)).sub_(tau.unsqueeze(1)).clamp_(min=0)
