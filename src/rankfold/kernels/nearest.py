"""The k best candidates by inner product, of which only the scores near the best are stored.

``nearest_plain`` says what is meant. ``nearest`` gives the same on a CUDA device with Triton, by
the argument of ``topk.top_k``: the largest score of each block of candidates is found without
storing the others, and only inside the blocks with the largest ones is anything scored again: of
100 million candidates less than a hundredth of the scores is stored.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rankfold.kernels import nearest_triton
from rankfold.kernels.topk import bytes_per_row, top_k
from rankfold.types import TopK

MOST_TAKEN = 1024  # blocks for a query
LEAST_SCORES = 2**27  # of all queries; to store fewer takes no longer
ENOUGH = 4  # times as many blocks as are taken; likewise

Pairs = tuple[Tensor, Tensor]  # of rows and candidates


def nearest_plain(queries: Tensor, candidates: Tensor, k: int, hidden: Pairs | None = None) -> TopK:
    """``top_k`` of all scores of [B, D] and [N, D], those of ``hidden`` pairs left out."""
    scores = queries.float() @ candidates.float().T
    if hidden is not None:
        scores[hidden] = -torch.inf
    return top_k(scores, k)


def takes(queries: Tensor, candidates: Tensor, k: int, most_hidden: int) -> bool:
    """Whether ``nearest`` can do this, and it pays."""
    many = len(queries) * len(candidates) >= LEAST_SCORES
    if not many or not nearest_triton.takes(queries, candidates):
        return False
    taken, n_blocks = k + most_hidden, len(candidates) // nearest_triton.block_size(queries)
    return k > 0 and taken <= MOST_TAKEN and ENOUGH * taken <= n_blocks


def bytes_per_query(queries: Tensor, n_candidates: int, k: int, most_hidden: int) -> int:
    """What ``nearest`` allocates for each query, at most."""
    size, taken = nearest_triton.block_size(queries), k + most_hidden
    n_blocks, inside = -(-n_candidates // size), taken * size
    return 4 * (n_blocks + inside) + bytes_per_row(n_blocks, taken) + bytes_per_row(inside, k)


def nearest(
    queries: Tensor, candidates: Tensor, k: int, hidden: Pairs | None = None, most_hidden: int = 0
) -> TopK:
    """``nearest_plain``, up to the rounding of products.

    Of each query k + ``most_hidden`` blocks are taken, so that k of their largest scores are not
    hidden: what is in another block is no larger than these.

    Args:
        queries: [B, D], which ``takes`` accepts with
        candidates: [N, D].
        k: how many.
        hidden: rows and candidates that are left out, in the order of the rows.
        most_hidden: of any row.
    """
    size = nearest_triton.block_size(queries)
    maxima = nearest_triton.block_maxima(queries, candidates)
    blocks = top_k(maxima, k + most_hidden).ids.sort(dim=1).values  # so that columns ascend
    inside = nearest_triton.scores_inside(queries, candidates, blocks)
    return best_inside(inside, blocks, size, k, hidden)


def best_inside(
    inside: Tensor, blocks: Tensor, size: int, k: int, hidden: Pairs | None = None
) -> TopK:
    """The k best of the scores [B, T * size] in blocks [B, T] of ``size`` candidates, ascending."""
    if hidden is not None:
        inside.view(-1)[_places(blocks, size, *hidden)] = -torch.inf
    ids, scores = top_k(inside, k)
    found = blocks.gather(1, ids.clamp(min=0) // size) * size + ids % size
    return TopK(found.where(ids >= 0, -1), scores)


def _places(blocks: Tensor, size: int, rows: Tensor, columns: Tensor) -> Tensor:
    """Where candidates are among the scores of the blocks of their rows; of those that are."""
    base = int(torch.maximum(blocks.max(), columns.max() // size)) + 1 if len(columns) else 1
    first = torch.arange(len(blocks), device=blocks.device)[:, None] * base
    ascending, wanted = (first + blocks).flatten(), rows * base + columns // size
    places = torch.searchsorted(ascending, wanted).clamp_(max=len(ascending) - 1)
    known = ascending[places] == wanted
    return places[known] * size + columns[known] % size
