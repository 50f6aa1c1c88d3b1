"""Extra scores beside the inner products that an approximate index has searched by."""

import torch
from torch import Tensor

from rankfold.index.filter import best_k, is_hidden
from rankfold.types import Allow, Exclude, Interactions, TopK

_PAIR_BLOCK = 2**18  # inner products at a time


def merge_extra(
    top: TopK,
    vectors: Tensor,
    candidates: Tensor,
    extra: Interactions,
    exclude: Exclude = None,
    allow: Allow = None,
) -> TopK:
    """The best by inner products plus the grades of ``extra``, given the best by inner products.

    Grades are above 0, so the k best are among the k best by inner products and the pairs of
    ``extra``: any other candidate is behind k of the former. A pair may occur several times.

    Args:
        top: the k best of each query after filters.
        vectors: of the queries, [B, D].
        candidates: [N, D].
        extra: [B, N].
        exclude: as in a search.
        allow: as in a search.
    """
    n, k, device = len(candidates), top.ids.shape[1], top.ids.device
    assert extra.grades is not None
    codes, place = extra.codes().to(device).unique(return_inverse=True)  # ascending
    rows, columns = codes // n, codes % n
    sums = torch.zeros(len(codes), device=device).index_add_(0, place, extra.grades.to(device))
    for start in range(0, len(codes), _PAIR_BLOCK):
        own = slice(start, start + _PAIR_BLOCK)
        sums[own] += (vectors[rows[own]].float() * candidates[columns[own]].float()).sum(dim=1)
    counts = torch.bincount(rows, minlength=len(vectors))
    width = int(counts.max()) if len(counts) else 0
    inside = torch.arange(len(rows), device=device) - (counts.cumsum(0) - counts)[rows]
    ids = torch.full((len(vectors), width), -1, device=device)
    scores = torch.full((len(vectors), width), -torch.inf, device=device)
    ids[rows, inside], scores[rows, inside] = columns, sums
    scores[is_hidden(ids, exclude, allow, n)] = -torch.inf
    known = torch.arange(len(vectors), device=device)[:, None] * n + top.ids
    again = torch.isin(known, codes) & (top.ids >= 0)
    others = top.scores.float().masked_fill(again, -torch.inf)
    both = torch.cat([top.ids, ids], dim=1), torch.cat([others, scores], dim=1)
    return best_k(*both, k)
