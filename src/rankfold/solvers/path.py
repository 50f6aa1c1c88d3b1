"""All ranks and thresholds of a spectral solution, scored without solving again.

With T' = U diag(sigma) V^T the scores of rank r at threshold tau are A_sigma - tau A_1, where
A_sigma = sum_{j <= r} sigma_j u_j v_j^T and A_1 = sum_{j <= r} u_j v_j^T: two blocks that grow
with r, whatever the number of thresholds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Point(NamedTuple):
    rank: int
    threshold: float  # of the singular value at that rank


def path_scores(
    products: Tensor,
    values: Tensor,
    candidates: Tensor,
    points: Sequence[Point],
    hidden: Tensor,
) -> Iterator[tuple[Point, Tensor]]:
    """The scores of some queries at each point of the path; the tensor is used again.

    Args:
        products: T' V for the queries, up to a factor per query; [B, K].
        values: sigma, [K], descending.
        candidates: V with its rows scaled as candidates are to be scored; [N, K].
        points: by ascending rank.
        hidden: 0, or -inf for candidates not to be returned; [B, L], L >= N.
    """
    n, count = len(candidates), len(products)
    both = torch.cat([hidden, torch.zeros_like(hidden)])  # A_sigma, and below it A_1
    lefts = torch.cat([products, products / values])
    scores = torch.empty_like(hidden)
    done = 0
    for point in points:
        if point.rank > done:
            new = slice(done, point.rank)
            both[:, :n].addmm_(lefts[:, new], candidates[:, new].T)
            done = point.rank
        tau = point.threshold * float(values[point.rank - 1])
        yield point, torch.add(both[:count], both[count:], alpha=-tau, out=scores)
