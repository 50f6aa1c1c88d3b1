"""``log_sum_exp`` as fused CUDA kernels: a tile of scores stays in registers.

Three kernels, each of which computes its tiles of scores:

- forward: online log-sum-exp of some queries over a share of the candidates;
- query gradient: sum_j softmax_bj q_j of some queries over a share of the candidates;
- candidate gradient: sum_b g_b softmax_bj p_b of some candidates over all queries.

There are few tiles of queries and many of candidates, so the first two split the candidates into
shares to fill the device, and torch sums the shares: no atomics, deterministic results.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rankfold.kernels import triton_support as support
from rankfold.kernels.triton_support import load_rows, store_rows

MAX_WIDTH = 256  # a wider tile of vectors does not fit; on an H200 tiles take up to 113 KiB
PROGRAMS = 1024  # target: several for each processor of a large device

tl: Any = None  # triton.language, set by ``compiled``


def takes(queries: Tensor, candidates: Tensor) -> bool:
    """Whether the kernels support these tensors. float16 underflows for small probabilities."""
    same = queries.dtype == candidates.dtype and queries.dtype in (torch.float32, torch.bfloat16)
    some = len(queries) > 0 and len(candidates) > 0 and 0 < queries.shape[1] <= MAX_WIDTH
    return same and some and _runs_on(queries.device)


@cache
def _runs_on(device: torch.device) -> bool:
    """Whether a device can run the kernels and passes one trial."""
    return support.runs_triton(device) and (device.type != "cuda" or _passes_trial_on(device))


def _passes_trial_on(device: torch.device) -> bool:
    """Whether the kernels compile and agree with the plain form; if not, a warning says why."""
    rng = torch.Generator().manual_seed(0)
    p, q = (torch.randn(n, 20, generator=rng).to(device).requires_grad_() for n in (70, 300))
    plain = (p @ q.T).logsumexp(dim=1)
    expected = [plain, *torch.autograd.grad(plain.sum(), (p, q))]

    def trial() -> float:
        fused = log_sum_exp(p, q)
        return support.relative_error([fused, *torch.autograd.grad(fused.sum(), (p, q))], expected)

    return support.passes_trial(trial, "softmax uses blocks of scores")


def log_sum_exp(queries: Tensor, candidates: Tensor) -> Tensor:
    """``log_sum_exp_plain`` of [B, D] and [N, D] that ``takes`` accepts; [B].

    bfloat16 is multiplied directly and summed in float32. float32 takes three tf32 products, which
    are about as exact, or one if ``torch.set_float32_matmul_precision`` allows it.
    """
    value: Tensor = _LogSumExp.apply(queries, candidates)  # type: ignore[no-untyped-call]
    return value


class _LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, candidates: Tensor) -> Tensor:
        queries, candidates = queries.contiguous(), candidates.contiguous()
        value = _forward(queries, candidates)
        ctx.save_for_backward(queries, candidates, value)
        return value.to(queries.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None]:
        queries, candidates, value = ctx.saved_tensors
        upstream = upstream.float().contiguous()
        of_queries = of_candidates = None
        if ctx.needs_input_grad[0]:
            sums = _query_sums(queries, candidates, value)
            of_queries = (sums * upstream.unsqueeze(1)).to(queries.dtype)
        if ctx.needs_input_grad[1]:
            of_candidates = _candidate_sums(queries, candidates, value, upstream)
        return of_queries, of_candidates


# ---------------------------------------------------------------------------------- launches


def _forward(queries: Tensor, candidates: Tensor) -> Tensor:
    """The log-sum-exp; [B] float32."""
    tile, shares, share = _plan(queries, candidates)
    parts = queries.new_empty(shares, len(queries), dtype=torch.float32)
    grid = support.ceil(len(queries), tile["ROWS"]), shares
    support.compiled(_forward_kernel)[grid](
        queries, candidates, parts, *_sizes(queries, candidates), share, **tile
    )
    return parts.logsumexp(dim=0)


def _query_sums(queries: Tensor, candidates: Tensor, value: Tensor) -> Tensor:
    """For each query sum_j softmax_bj q_j; [B, D] float32."""
    tile, shares, share = _plan(queries, candidates)
    parts = queries.new_empty(shares, *queries.shape, dtype=torch.float32)
    grid = support.ceil(len(queries), tile["ROWS"]), shares
    sizes = _sizes(queries, candidates)
    support.compiled(_query_sums_kernel)[grid](
        queries, candidates, value, parts, *sizes, share, **tile
    )
    return parts.sum(dim=0)


def _candidate_sums(queries: Tensor, candidates: Tensor, value: Tensor, upstream: Tensor) -> Tensor:
    """For each candidate sum_b g_b softmax_bj p_b; [N, D], in the candidates' precision."""
    tile, _, _ = _plan(queries, candidates)
    sums = torch.empty_like(candidates)
    grid = (support.ceil(len(candidates), tile["ROWS"]),)
    sizes = _sizes(queries, candidates)
    support.compiled(_candidate_sums_kernel)[grid](
        queries, candidates, value, upstream, sums, *sizes, **tile
    )
    return sums


def _plan(queries: Tensor, candidates: Tensor) -> tuple[dict[str, Any], int, int]:
    """Sizes of a tile, number of shares, and tiles of candidates in a share.

    A program has ROWS rows of one side, and steps through the other in COLUMNS.
    """
    exact = queries.dtype == torch.float32
    width = support.padded_width(queries.shape[1])
    rows, columns = {64: (128, 128), 128: (64, 128), 256: (64, 64)}[max(64, width)]
    if exact:  # twice the bytes, plus a copy of the digits that tf32 drops
        rows, columns = {64: (128, 64), 128: (64, 32), 256: (32, 32)}[max(64, width)]
    tile: dict[str, Any] = {"WIDTH": width, "ROWS": rows, "COLUMNS": columns}
    tile |= {
        "PRECISION": support.precision(),
        "num_warps": 8 if rows == 128 else 4,
        "num_stages": 2,
    }
    steps = support.ceil(len(candidates), columns)
    share = support.ceil(steps, max(1, PROGRAMS // support.ceil(len(queries), rows)))
    return tile, support.ceil(steps, share), share


def _sizes(queries: Tensor, candidates: Tensor) -> tuple[int, int, int]:
    return len(queries), len(candidates), queries.shape[1]


# ---------------------------------------------------------------------------------- kernels
#
# p: queries [B, D], q: candidates [N, D]. Vectors are padded to WIDTH with zeros. Rows beyond the
# last query or candidate are read as zeros, and their scores count as -inf.
# Triton reads the annotations, and knows only its own names.


def _forward_kernel(  # noqa: PLR0913
    p: tl.tensor,
    q: tl.tensor,
    parts: tl.tensor,  # [shares, B]
    B: tl.tensor,
    N: tl.tensor,
    D: tl.tensor,
    share: tl.tensor,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    own = load_rows(p, rows, B, D, WIDTH)
    most = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    start = tl.program_id(1) * share * COLUMNS
    for at in range(start, min(start + share * COLUMNS, N), COLUMNS):
        columns = at + tl.arange(0, COLUMNS)
        other = load_rows(q, columns, N, D, WIDTH)
        scores = tl.dot(own, tl.trans(other), input_precision=PRECISION) * 1.4426950408889634
        scores = tl.where(columns[None, :] < N, scores, float("-inf"))
        larger = tl.maximum(most, tl.max(scores, 1))
        total = total * tl.exp2(most - larger) + tl.sum(tl.exp2(scores - larger[:, None]), 1)
        most = larger
    value = (most + tl.log2(total)) / 1.4426950408889634
    tl.store(parts + tl.program_id(1).to(tl.int64) * B + rows, value, mask=rows < B)


def _query_sums_kernel(  # noqa: PLR0913
    p: tl.tensor,
    q: tl.tensor,
    value: tl.tensor,  # [B]
    parts: tl.tensor,  # [shares, B, D]
    B: tl.tensor,
    N: tl.tensor,
    D: tl.tensor,
    share: tl.tensor,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    own = load_rows(p, rows, B, D, WIDTH)
    log_z = tl.load(value + rows, mask=rows < B, other=float("inf")) * 1.4426950408889634
    sums = tl.zeros((ROWS, WIDTH), tl.float32)
    start = tl.program_id(1) * share * COLUMNS
    for at in range(start, min(start + share * COLUMNS, N), COLUMNS):
        columns = at + tl.arange(0, COLUMNS)
        other = load_rows(q, columns, N, D, WIDTH)
        scores = tl.dot(own, tl.trans(other), input_precision=PRECISION) * 1.4426950408889634
        softmax = tl.where(columns[None, :] < N, tl.exp2(scores - log_z[:, None]), 0.0)
        sums = tl.dot(softmax.to(other.dtype), other, sums, input_precision=PRECISION)
    store_rows(parts + tl.program_id(1).to(tl.int64) * B * D, rows, B, D, sums, WIDTH)


def _candidate_sums_kernel(  # noqa: PLR0913
    p: tl.tensor,
    q: tl.tensor,
    value: tl.tensor,  # [B]
    upstream: tl.tensor,  # g, [B]
    out: tl.tensor,  # [N, D]
    B: tl.tensor,
    N: tl.tensor,
    D: tl.tensor,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    own = load_rows(q, rows, N, D, WIDTH)
    sums = tl.zeros((ROWS, WIDTH), tl.float32)
    for at in range(0, B, COLUMNS):
        columns = at + tl.arange(0, COLUMNS)
        other = load_rows(p, columns, B, D, WIDTH)
        log_z = tl.load(value + columns, mask=columns < B, other=float("inf"))
        g = tl.load(upstream + columns, mask=columns < B, other=0.0)
        scores = tl.dot(own, tl.trans(other), input_precision=PRECISION) * 1.4426950408889634
        weights = tl.exp2(scores - log_z[None, :] * 1.4426950408889634) * g[None, :]
        sums = tl.dot(weights.to(other.dtype), other, sums, input_precision=PRECISION)
    store_rows(out, rows, N, D, sums.to(own.dtype), WIDTH)
