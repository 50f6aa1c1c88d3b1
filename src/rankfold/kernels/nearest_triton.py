"""Largest scores of blocks of candidates, as fused CUDA kernels: no other score is stored.

Two kernels:

- maxima: the largest score of each block, for some queries and a share of the candidates;
- inside: the scores of a query with all candidates of one of its chosen blocks.

There are few tiles of queries and many of candidates. Neighbouring programs read the same
candidates, which are then in the cache.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from rankfold.kernels import triton_support as support
from rankfold.kernels.triton_support import load_rows

MAX_WIDTH = {torch.float32: 128, torch.bfloat16: 256, torch.float16: 256}  # that fits in a tile
MAX_CANDIDATES = 2**31 - 2**12  # ids are 32 bits
SHARE = 16  # blocks of a program

tl: Any = None  # triton.language, set by ``compiled``


def takes(queries: Tensor, candidates: Tensor) -> bool:
    """Whether the kernels support these tensors."""
    width, dtype = queries.shape[1], queries.dtype
    most = MAX_WIDTH.get(dtype, 0) if candidates.dtype == dtype else 0
    some = len(queries) > 0 and 0 < len(candidates) <= MAX_CANDIDATES and 0 < width <= most
    return (
        some
        and candidates.is_contiguous()
        and support.runs_triton(queries.device)
        and (
            not queries.is_cuda
            or _passes_trial_on(queries.device, dtype, support.padded_width(width))
        )
    )


@cache
def _passes_trial_on(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Whether the kernels compile and agree with the plain forms; if not, a warning says why."""
    rng = torch.Generator().manual_seed(0)
    p, q = (torch.randn(n, width - 1, generator=rng).to(device, dtype) for n in (70, 300))
    size = block_size(p)
    blocks = torch.tensor([0, support.ceil(len(q), size) - 1], device=device).expand(len(p), 2)

    def trial() -> float:
        inside, right = scores_inside(p, q, blocks), scores_inside_plain(p, q, blocks, size)
        there = right > -torch.inf
        if not torch.equal(inside > -torch.inf, there):
            return torch.inf
        expected = block_maxima_plain(p, q, size), right[there]
        return support.relative_error([block_maxima(p, q), inside[there]], expected)

    return support.passes_trial(trial, "search uses blocks of scores")


def block_maxima_plain(queries: Tensor, candidates: Tensor, size: int) -> Tensor:
    """The largest score of each query in each block of ``size`` candidates; [B, blocks]."""
    scores = queries.float() @ candidates.float().T
    return torch.stack([block.amax(dim=1) for block in scores.split(size, dim=1)], dim=1)


def scores_inside_plain(queries: Tensor, candidates: Tensor, blocks: Tensor, size: int) -> Tensor:
    """Scores with the candidates of blocks [B, T]; [B, T * size], -inf beyond the last one."""
    columns = (blocks[:, :, None] * size + torch.arange(size, device=blocks.device)).flatten(1)
    scores = queries.float() @ candidates.float().T
    inside = scores.gather(1, columns.clamp(max=len(candidates) - 1))
    return inside.masked_fill(columns >= len(candidates), -torch.inf)


def block_size(queries: Tensor) -> int:
    """Candidates in a block: the columns of a tile."""
    return int(_tile(queries)["COLUMNS"])


def block_maxima(queries: Tensor, candidates: Tensor) -> Tensor:
    """``block_maxima_plain`` of [B, D] and [N, D] that ``takes`` accepts; [B, blocks] float32.

    Half precision is multiplied directly and summed in float32.
    """
    queries, tile = queries.contiguous(), _tile(queries)
    n_blocks, parts = (
        support.ceil(len(candidates), tile["COLUMNS"]),
        support.ceil(len(queries), tile["ROWS"]),
    )
    maxima = queries.new_empty(len(queries), n_blocks, dtype=torch.float32)
    grid = (parts * support.ceil(n_blocks, SHARE),)  # one dimension: the others end at 65,535
    sizes = len(queries), len(candidates), queries.shape[1], n_blocks
    support.compiled(_maxima_kernel)[grid](
        queries, candidates, maxima, *sizes, parts, SHARE, **tile
    )
    return maxima


def scores_inside(queries: Tensor, candidates: Tensor, blocks: Tensor) -> Tensor:
    """``scores_inside_plain`` for tensors that ``takes`` accepts; [B, T * size] float32."""
    queries, blocks = queries.contiguous(), blocks.contiguous()
    size = block_size(queries)
    inside = queries.new_empty(*blocks.shape, size, dtype=torch.float32)
    sizes = len(candidates), queries.shape[1], blocks.shape[1]
    support.compiled(_inside_kernel)[(blocks.numel(),)](
        queries,
        candidates,
        blocks,
        inside,
        *sizes,
        WIDTH=support.padded_width(queries.shape[1]),
        COLUMNS=size,
    )
    return inside.flatten(1)


def _tile(queries: Tensor) -> dict[str, Any]:
    """Sizes of a tile of scores: ROWS of queries, COLUMNS of candidates."""
    width = support.padded_width(queries.shape[1])
    columns, stages = {64: (128, 2), 128: (128, 2), 256: (64, 1)}[max(64, width)]
    if queries.dtype == torch.float32:  # twice the bytes, plus the digits that tf32 drops
        columns, stages = {64: (64, 1), 128: (32, 1)}[max(64, width)]
    tile: dict[str, Any] = {"WIDTH": width, "ROWS": 128, "COLUMNS": columns}
    return tile | {"PRECISION": support.precision(), "num_warps": 8, "num_stages": stages}


# ---------------------------------------------------------------------------------- kernels
#
# p: queries [B, D], q: candidates [N, D]. Vectors are padded to WIDTH with zeros. Rows beyond the
# last query or candidate are read as zeros, and their scores count as -inf.
# Triton reads the annotations, and knows only its own names.


def _maxima_kernel(  # noqa: PLR0913
    p: tl.tensor,
    q: tl.tensor,
    out: tl.tensor,  # [B, blocks]
    B: tl.tensor,
    N: tl.tensor,
    D: tl.tensor,
    blocks: tl.tensor,
    parts: tl.tensor,  # of the queries, ROWS each
    share: tl.tensor,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    rows = tl.program_id(0) % parts * ROWS + tl.arange(0, ROWS)
    own = load_rows(p, rows, B, D, WIDTH)
    first = tl.program_id(0) // parts * share
    for block in range(first, min(first + share, blocks)):
        columns = block * COLUMNS + tl.arange(0, COLUMNS)
        other = load_rows(q, columns, N, D, WIDTH)
        scores = tl.dot(own, tl.trans(other), input_precision=PRECISION)
        scores = tl.where(columns[None, :] < N, scores, float("-inf"))
        place = rows.to(tl.int64) * blocks + block
        tl.store(out + place, tl.max(scores, 1), mask=rows < B)


def _inside_kernel(
    p: tl.tensor,
    q: tl.tensor,
    taken: tl.tensor,  # [B, T]
    out: tl.tensor,  # [B, T, COLUMNS]
    N: tl.tensor,
    D: tl.tensor,
    T: tl.tensor,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    place = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, WIDTH)
    own = tl.load(p + place // T * D + d, mask=d < D, other=0.0).to(tl.float32)
    columns = tl.load(taken + place) * COLUMNS + tl.arange(0, COLUMNS)
    other = load_rows(q, columns, N, D, WIDTH)
    scores = tl.sum(other.to(tl.float32) * own[None, :], 1)
    scores = tl.where(columns < N, scores, float("-inf"))
    tl.store(out + place * COLUMNS + tl.arange(0, COLUMNS), scores)
