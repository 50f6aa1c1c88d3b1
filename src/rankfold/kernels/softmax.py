"""log sum exp of a query's scores with all candidates, without holding the B x N scores.

``log_sum_exp_plain`` is the reference. ``log_sum_exp`` gives the same value and gradients from
blocks of scores that stay in the cache. Each block is computed twice, in the forward and in the
backward pass: four matrix products instead of three, but half of the time, because the plain form
moves all scores to and from main memory.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CPU_BLOCK_BYTES = 2**24  # of scores; 1 to 16 MiB are equally fast
DEVICE_BLOCK_BYTES = 2**28  # elsewhere: large enough to hide kernel launches
MAX_ROWS = 1024  # queries in a block; with more, too few candidates are left for a fast product


def log_sum_exp_plain(queries: Tensor, candidates: Tensor) -> Tensor:
    """For each query log sum_j exp(p_b . q_j), from the full matrix of scores; [B]."""
    return (queries @ candidates.T).logsumexp(dim=1)


def log_sum_exp(queries: Tensor, candidates: Tensor, block_bytes: int | None = None) -> Tensor:
    """``log_sum_exp_plain`` in O(B) memory plus a block, beside the gradients; [B].

    Differentiable once, in both arguments. Half precision is multiplied and summed in float32.

    Args:
        queries: [B, D].
        candidates: [N, D].
        block_bytes: of a block of scores; None: the fastest, which on CUDA with Triton is a fused
            kernel without blocks.
    """
    if block_bytes is None and queries.is_cuda:
        from rankfold.kernels import softmax_triton

        if softmax_triton.takes(queries, candidates):
            return softmax_triton.log_sum_exp(queries, candidates)
    value: Tensor = _LogSumExp.apply(queries, candidates, block_bytes)  # type: ignore[no-untyped-call]
    return value


class _LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, candidates: Tensor, block_bytes: int | None) -> Tensor:
        """Online: the sum of exp(s - largest so far) is rescaled when the largest grows."""
        most = wide(queries).new_full((len(queries),), -torch.inf)
        total = torch.zeros_like(most, dtype=torch.float64)  # a sum over hundreds of blocks
        for rows, _, scores in score_blocks(queries, candidates, block_bytes):
            larger = torch.maximum(most[rows], scores.amax(dim=1))
            total[rows] *= (most[rows] - larger).exp_()
            total[rows] += scores.sub_(larger.unsqueeze(1)).exp_().sum(dim=1)
            most[rows] = larger
        value = most + total.log_().to(most.dtype)
        ctx.save_for_backward(queries, candidates, value)
        ctx.block_bytes = block_bytes
        return value.to(queries.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """The gradient in a score is its softmax, exp(s - value)."""
        queries, candidates, value = ctx.saved_tensors

        def softmax(rows: slice, scores: Tensor) -> Tensor:
            return scores.sub_(value[rows].unsqueeze(1)).exp_()

        wanted = ctx.needs_input_grad[0], ctx.needs_input_grad[1]
        return *gradients(softmax, upstream, queries, candidates, wanted, ctx.block_bytes), None


def gradients(
    weigh: Callable[[slice, Tensor], Tensor],
    upstream: Tensor,
    queries: Tensor,
    candidates: Tensor,
    wanted: tuple[bool, bool],
    block_bytes: int | None = None,
) -> tuple[Tensor | None, Tensor | None]:
    """diag(g) W Q and W^T diag(g) P, where W [B, N] is ``weigh(rows, scores)``, block by block.

    Args:
        weigh: the derivative of a query's value by each score; may overwrite the scores.
        upstream: g, [B].
        queries: P, [B, D].
        candidates: Q, [N, D].
        wanted: which of the two to compute; the other is None.
        block_bytes: of a block of scores.
    """
    scale = wide(upstream).unsqueeze(1)
    scaled = wide(queries) * scale  # saves a pass over the weights for g
    of_queries = torch.zeros_like(scaled) if wanted[0] else None
    of_candidates = torch.zeros_like(candidates, dtype=scaled.dtype) if wanted[1] else None
    for rows, columns, scores in score_blocks(queries, candidates, block_bytes):
        weights = weigh(rows, scores)
        if of_queries is not None:
            of_queries[rows].addmm_(weights, wide(candidates[columns]))
        if of_candidates is not None:
            of_candidates[columns].addmm_(weights.T, scaled[rows])
    return (
        None if of_queries is None else of_queries.mul_(scale).to(queries.dtype),
        None if of_candidates is None else of_candidates.to(candidates.dtype),
    )


def score_blocks(
    queries: Tensor, candidates: Tensor, block_bytes: int | None = None
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Rows, columns and scores of each block of P Q^T; all columns of some rows, then the next.

    All blocks use the same memory: scores are valid until the next block.
    """
    queries = wide(queries)
    height, width = block_shape(queries, candidates, block_bytes)
    memory = queries.new_empty(height * width)
    for top in range(0, len(queries), max(1, height)):
        rows = slice(top, min(top + height, len(queries)))
        for left in range(0, len(candidates), max(1, width)):
            columns = slice(left, min(left + width, len(candidates)))
            shape = rows.stop - rows.start, columns.stop - columns.start
            scores = memory[: shape[0] * shape[1]].view(shape)
            torch.mm(queries[rows], wide(candidates[columns]).T, out=scores)
            yield rows, columns, scores


def block_shape(queries: Tensor, candidates: Tensor, block_bytes: int | None) -> tuple[int, int]:
    """Queries and candidates in a block of scores of that many bytes, at least one of each."""
    if block_bytes is None:
        block_bytes = CPU_BLOCK_BYTES if queries.device.type == "cpu" else DEVICE_BLOCK_BYTES
    height = min(len(queries), MAX_ROWS)
    width = block_bytes // (max(1, height) * queries.element_size())
    return height, min(len(candidates), max(1, width))


def wide(values: Tensor) -> Tensor:
    """Half precision as float32: sums of many terms need the digits."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
