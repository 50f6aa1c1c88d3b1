"""The k largest scores of each row, best first, equal scores by ascending column.

``top_k_reference`` says what is meant; ``top_k`` gives the same, faster. Both return ids and scores
[B, min(k, n)], with id -1 where a score is -inf. Nothing is left to chance, and -0.0 equals 0.0. A
NaN has no place in an order: neither looks for one, so callers keep it out.
"""

from __future__ import annotations

from math import log2

import torch
from torch import Tensor
from torch.nn.functional import pad

from rankfold.types import TopK

SMALLEST_BLOCK, LARGEST_BLOCK = 32, 128  # columns; below 32 ``amax`` is several times slower
BYTES_PER_VALUE = (
    48  # allocated for each value that is ranked, at most: copies, keys, a sorted copy
)


def top_k_reference(scores: Tensor, k: int) -> TopK:
    """Sort each row of ``scores`` [B, n] stably and keep the first k."""
    columns = (scores + 0.0).sort(dim=1, descending=True, stable=True).indices[:, :k]
    return _results(scores, columns)


def top_k(scores: Tensor, k: int) -> TopK:
    """``top_k_reference`` without sorting whole rows: by the maxima of blocks of columns.

    The k blocks with the largest maxima are taken, of equal maxima the leftmost, and only what is
    inside them is ranked. This is exact, ties included: let s be a score in a block not taken. Each
    of the k blocks taken has a maximum that is larger than s, or equal to it and further left. So k
    scores come before s, and s is not among the first k.

    Args:
        scores: [B, n] of any floating type, without NaN. Fastest where n is a multiple of the block
            and the rows lie side by side.
        k: how many, from 0; more than n is n.
    """
    n = scores.shape[1]
    size = block_size(n, k)
    if size:
        return _results(scores, _largest_by_blocks(scores, k, size))
    return _results(scores, _largest(scores, min(k, n)))


def merge_top_k(left: TopK, right: TopK, k: int) -> TopK:
    """The best k of two results, where every id of ``left`` is below those of ``right``."""
    ids = torch.cat([left.ids, right.ids], dim=1)
    scores = torch.cat([left.scores, right.scores], dim=1)
    places = _largest(scores, min(k, scores.shape[1]))
    return TopK(ids.gather(1, places), scores.gather(1, places))


def block_size(n: int, k: int) -> int:
    """Columns in a block of ``top_k``; 0 where blocks would not pay.

    n / size maxima and k * size scores are ranked: fewest at sqrt(n / k), here as a power of two.
    """
    if k == 0 or n < 2 * k * SMALLEST_BLOCK:
        return 0
    return min(max(SMALLEST_BLOCK, 1 << round(log2(n / k) / 2)), LARGEST_BLOCK)


def bytes_per_row(n: int, k: int) -> int:
    """What ``top_k`` of n columns and a merge after it allocate for each row, at most."""
    size = block_size(n, k)
    ranked = n // size + (k + 1) * size if size else n
    return BYTES_PER_VALUE * (ranked + 2 * min(k, n))


def _largest_by_blocks(scores: Tensor, k: int, size: int) -> Tensor:
    """Columns of the k largest. What is right of the last full block is ranked in any case."""
    n_blocks = scores.shape[1] // size
    blocks = scores[:, : n_blocks * size].unflatten(1, (n_blocks, size))
    rest = scores[:, n_blocks * size :]
    taken = _largest(blocks.amax(dim=2), k).sort(dim=1).values  # so that places ascend with columns
    inside = _side_by_side(blocks, taken)
    if rest.shape[1]:
        inside = torch.cat([inside, rest], dim=1)
    places = _largest(inside, k)
    block_of_place = pad(taken, (0, 1), value=n_blocks).gather(1, places // size)
    return block_of_place * size + places % size


def _side_by_side(blocks: Tensor, taken: Tensor) -> Tensor:
    """The blocks [B, n_blocks, size] at ``taken`` [B, k]; [B, k * size]."""
    rows = torch.arange(len(blocks), device=blocks.device).unsqueeze(1)
    if not blocks.is_contiguous():
        return blocks[rows, taken].flatten(1)
    places = (rows * blocks.shape[1] + taken).flatten()  # five times faster than two indices
    return (
        blocks.flatten(0, 1)
        .index_select(0, places)
        .view(len(taken), taken.shape[1] * blocks.shape[2])
    )


def _largest(values: Tensor, k: int) -> Tensor:
    """Columns of the k largest of each row, best first, equal values by ascending column.

    ``torch.topk`` leaves the order of equal values open, so it is given keys, which all differ. A
    float64 leaves no room for the column in a key: those are sorted.
    """
    if values.dtype == torch.float64:
        return values.sort(dim=1, descending=True, stable=True).indices[:, :k]
    return _keys(values.float()).topk(k, dim=1).indices


def _keys(values: Tensor) -> Tensor:
    """int64 in the order of (value, descending column): the bits of the value, then the column.

    Read as an integer, the bits of a float ascend with it where it is positive, else descend.
    """
    bits = (values + 0.0).view(torch.int32)  # + 0.0 turns -0.0 into 0.0
    bits ^= (bits >> 31) & 0x7FFFFFFF  # where negative, flip all but the sign
    keys = bits.long()
    keys <<= 32
    keys -= torch.arange(values.shape[1], device=values.device)
    return keys


def _results(scores: Tensor, columns: Tensor) -> TopK:
    best = scores.gather(1, columns)
    return TopK(columns.masked_fill(best == -torch.inf, -1), best)
