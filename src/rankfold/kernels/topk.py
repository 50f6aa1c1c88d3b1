"""The largest scores of each row, in an order that leaves nothing to chance."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rankfold.types import TopK

LOW = 2**32 - 1  # the lower half of a sorting key


def top_k_reference(scores: Tensor, k: int) -> TopK:
    """The k largest of each row, best first, equal scores by ascending column.

    Args:
        scores: [B, n], without NaN.
        k: how many.

    Returns:
        ids and scores [B, min(k, n)]; an entry of -inf is never returned: id -1, score -inf.
    """
    values, ids = torch.sort(scores, dim=1, descending=True, stable=True)
    values, ids = values[:, :k], ids[:, :k]
    return TopK(ids.masked_fill(values == -torch.inf, -1), values)


def top_k(scores: Tensor, k: int) -> TopK:
    """``top_k_reference`` for float32 and narrower, without sorting whole rows.

    A row is cut into blocks. The k best entries lie in the k blocks with the largest maxima, if of
    equal maxima the earlier block is taken: a block that is not taken has k blocks before it in
    that order, each with an entry larger than all of its own, or as large and of a lower column.
    So one pass finds the maxima, and the entries of k blocks alone are looked at again.
    """
    n = scores.shape[1]
    columns = torch.arange(n, device=scores.device)
    width = _block_width(n, k)
    if n < 4 * k * width:
        return best(scores, columns.expand_as(scores), min(k, n))
    whole = n - n % width
    maxima = scores[:, :whole].unflatten(1, (-1, width)).amax(dim=2)
    keys = _keys(maxima, columns[: maxima.shape[1]])
    blocks = _ids(keys.topk(k, dim=1, sorted=False).values)
    inside = (blocks[:, :, None] * width + columns[:width]).flatten(1)
    looked_at = torch.cat([inside, columns[whole:].expand(len(scores), -1)], dim=1)
    return best(scores.gather(1, looked_at), looked_at, k)


def best(scores: Tensor, ids: Tensor, k: int) -> TopK:
    """The k largest of each row, best first, equal scores by ascending id; ids are [B, n]."""
    keys = _keys(scores, ids).topk(k, dim=1).values
    order = (keys >> 32).int()
    values = (order ^ ((order >> 31) & 0x7FFFFFFF)).view(torch.float32)
    return TopK(_ids(keys).masked_fill(values == -torch.inf, -1), values)


def _block_width(n: int, k: int) -> int:
    """A power of two near sqrt(n / k): about as many maxima as entries to look at again."""
    return 1 << max(4, round(math.log2(max(n, 1) / max(k, 1)) / 2))


def _keys(scores: Tensor, ids: Tensor) -> Tensor:
    """Integers that sort as (score, then descending id): ``torch.topk`` alone breaks ties at will.

    The bits of a float32 sort as an integer if those below the sign are flipped for negatives;
    adding 0 makes -0 and 0 equal.
    """
    bits = (scores.float() + 0.0).view(torch.int32)
    order = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (order.long() << 32) | (LOW - ids)


def _ids(keys: Tensor) -> Tensor:
    return LOW - (keys & LOW)
