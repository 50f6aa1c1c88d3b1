"""The k largest scores of each row, best first, ties by ascending column.

``top_k_reference`` is the reference; ``top_k`` gives the same, faster. Both return ids and scores
[B, min(k, n)], with id -1 where a score is -inf. Results are deterministic, and -0.0 equals 0.0.
Scores must not contain NaN, which is not checked.
"""

from math import log2

import torch
from torch import Tensor
from torch.nn.functional import pad

from rankfold.types import TopK

_SMALLEST_BLOCK, LARGEST_BLOCK = 32, 128  # columns; below 32 ``amax`` is several times slower
BYTES_PER_VALUE = 48  # allocated for each ranked value, at most: copies, keys, a sorted copy


def top_k_reference(scores: Tensor, k: int) -> TopK:
    """Sort each row of ``scores`` [B, n] stably and keep the first k."""
    columns = (scores + 0.0).sort(dim=1, descending=True, stable=True).indices[:, :k]
    return _results(scores, columns)


def top_k(scores: Tensor, k: int) -> TopK:
    """``top_k_reference`` without sorting whole rows: by the maxima of blocks of columns.

    The k blocks with the largest maxima are taken (ties: the leftmost), and only the scores inside
    them are ranked. This is exact, including ties: let s be a score in a block not taken. Each of
    the k blocks taken has a maximum that is larger than s, or equal to it and further left. So k
    scores come before s, and s is not among the first k.

    Args:
        scores: [B, n] of any floating type, without NaN. Fastest if n is a multiple of the block
            and the rows are contiguous.
        k: at least 0; more than n counts as n.
    """
    n = scores.shape[1]
    size = block_size(n, k)
    if size:
        return _results(scores, _largest_by_blocks(scores, k, size))
    return _results(scores, _largest(scores, min(k, n)))


def top_k_of(ids: Tensor, scores: Tensor, k: int) -> TopK:
    """The best k of candidates ``ids`` [B, n] by their scores; equal scores by ascending id."""
    ids, order = ids.sort(dim=1, stable=True)
    places, scores = top_k(scores.gather(1, order), k)
    return TopK(ids.gather(1, places.clamp(min=0)).where(places >= 0, -1), scores)


def merge_top_k(left: TopK, right: TopK, k: int) -> TopK:
    """The best k of two results, where every id of ``left`` is below those of ``right``."""
    ids = torch.cat([left.ids, right.ids], dim=1)
    scores = torch.cat([left.scores, right.scores], dim=1)
    places = _largest(scores, min(k, scores.shape[1]))
    return TopK(ids.gather(1, places), scores.gather(1, places))


def block_size(n: int, k: int) -> int:
    """Columns in a block of ``top_k``; 0 if blocks would not be faster.

    n / size maxima and k * size scores are ranked: fewest at sqrt(n / k), here as a power of two.
    """
    if k == 0 or n < 2 * k * _SMALLEST_BLOCK:
        return 0
    return min(max(_SMALLEST_BLOCK, 1 << round(log2(n / k) / 2)), LARGEST_BLOCK)


def bytes_per_row(n: int, k: int) -> int:
    """An upper bound on the bytes per row of ``top_k`` of n columns and a merge after it."""
    size = block_size(n, k)
    ranked = n // size + (k + 1) * size if size else n
    return BYTES_PER_VALUE * (ranked + 2 * min(k, n))


def _largest_by_blocks(scores: Tensor, k: int, size: int) -> Tensor:
    """Columns of the k largest. Columns right of the last full block are always ranked."""
    n_blocks = scores.shape[1] // size
    blocks = scores[:, : n_blocks * size].unflatten(1, (n_blocks, size))
    rest = scores[:, n_blocks * size :]
    taken = _largest(blocks.amax(dim=2), k).sort(dim=1).values  # so that columns stay in order
    inside = _gather_blocks(blocks, taken)
    if rest.shape[1]:
        inside = torch.cat([inside, rest], dim=1)
    places = _largest(inside, k)
    block_of_place = pad(taken, (0, 1), value=n_blocks).gather(1, places // size)
    return block_of_place * size + places % size


def _gather_blocks(blocks: Tensor, taken: Tensor) -> Tensor:
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
    """Columns of the k largest of each row, best first, ties by ascending column.

    ``torch.topk`` does not define the order of equal values, so it gets distinct keys. float64
    leaves no room for the column in a key, and is sorted instead.
    """
    if values.dtype == torch.float64:
        return values.sort(dim=1, descending=True, stable=True).indices[:, :k]
    keys = _keys(values.float())
    if keys.device.type != "cpu" or len(keys) == 1 or k == 0:
        return keys.topk(k, dim=1).indices
    first = values.shape[1] - k  # numpy's partition takes half the time of many short ``topk``
    keys.numpy().partition(first, axis=1)
    best = keys[:, first:]
    best.numpy().sort(axis=1)
    return -best.flip(1) & 0xFFFFFFFF


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
