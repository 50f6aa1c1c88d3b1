"""The k best candidates by inner product, without storing most of the scores.

``nearest_plain`` is the reference. ``nearest`` gives the same on a CUDA device with Triton, by the
argument of ``topk.top_k``: it computes the largest score of each block of candidates without
storing the others, then scores the blocks with the largest ones again. Of 100 million candidates
it stores less than 1 % of the scores.
"""

import torch
from torch import Tensor

from rankfold.kernels import nearest_triton
from rankfold.kernels.topk import bytes_per_row, top_k
from rankfold.types import TopK

_MAX_BLOCKS = 1024  # taken for a query
MIN_SCORES = 2**27  # of all queries; storing fewer is as fast
_MIN_BLOCKS_PER_TAKEN = 4  # blocks in all / blocks taken; with fewer, storing all is as fast

Pairs = tuple[Tensor, Tensor]  # rows and candidates


def nearest_plain(queries: Tensor, candidates: Tensor, k: int, hidden: Pairs | None = None) -> TopK:
    """``top_k`` of all scores of [B, D] and [N, D], without ``hidden`` pairs."""
    scores = queries.float() @ candidates.float().T
    if hidden is not None:
        scores[hidden] = -torch.inf
    return top_k(scores, k)


def takes(queries: Tensor, candidates: Tensor, k: int, most_hidden: int) -> bool:
    """Whether ``nearest`` supports these tensors and is faster."""
    many = len(queries) * len(candidates) >= MIN_SCORES
    if not many or not nearest_triton.takes(queries, candidates):
        return False
    taken, n_blocks = k + most_hidden, len(candidates) // nearest_triton.block_size(queries)
    return k > 0 and taken <= _MAX_BLOCKS and _MIN_BLOCKS_PER_TAKEN * taken <= n_blocks


def bytes_per_query(queries: Tensor, n_candidates: int, k: int, most_hidden: int) -> int:
    """An upper bound on the bytes that ``nearest`` allocates for each query."""
    size, taken = nearest_triton.block_size(queries), k + most_hidden
    n_blocks, inside = -(-n_candidates // size), taken * size
    return 4 * (n_blocks + inside) + bytes_per_row(n_blocks, taken) + bytes_per_row(inside, k)


def nearest(
    queries: Tensor, candidates: Tensor, k: int, hidden: Pairs | None = None, most_hidden: int = 0
) -> TopK:
    """``nearest_plain``, up to the rounding of products.

    For each query k + ``most_hidden`` blocks are taken, so that k of their largest scores are not
    hidden: no score in another block is larger than these.

    Args:
        queries: [B, D].
        candidates: [N, D]; ``takes`` accepts both.
        k: how many.
        hidden: rows and candidates that are left out, in the order of the rows.
        most_hidden: the largest number of hidden candidates of a row.
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
    places, scores = top_k(inside, k)
    ids = blocks.gather(1, places.clamp(min=0) // size) * size + places % size
    return TopK(ids.where(places >= 0, -1), scores)


def _places(blocks: Tensor, size: int, rows: Tensor, columns: Tensor) -> Tensor:
    """The places of candidates among the scores of their rows' blocks, if they are in them."""
    base = int(torch.maximum(blocks.max(), columns.max() // size)) + 1 if len(columns) else 1
    first = torch.arange(len(blocks), device=blocks.device)[:, None] * base
    ascending, wanted = (first + blocks).flatten(), rows * base + columns // size
    places = torch.searchsorted(ascending, wanted).clamp_(max=len(ascending) - 1)
    known = ascending[places] == wanted
    return places[known] * size + columns[known] % size
