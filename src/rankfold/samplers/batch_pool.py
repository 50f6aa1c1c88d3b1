"""One pool of candidates for a batch of queries with all that they chose."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.types import Interactions


class Shared(NamedTuple):
    """The pool, and how likely each candidate is in it for the sake of another query."""

    ids: Tensor  # [C] int64, ascending
    log_q: Tensor  # [C]


def shared_pool(chosen: Interactions, shares: Tensor, size: int, rng: torch.Generator) -> Shared:
    """All that the batch chose, filled up to about ``size`` by candidates drawn uniformly.

    A candidate y that a share f_y of the queries chose is in the pool of B queries and E draws, for
    whatever query did not choose it, with probability ::

        q_y = 1 - (1 - f_y)^(B - 1) (1 - 1/N)^E

    Scores minus log q weigh the rivals as if all candidates were in the pool: without that, popular
    ones, which are in nearly every pool, would be pushed down too often. With ``size`` of at least
    N the pool is everything, and log q is 0.

    Args:
        chosen: a row per query of the batch.
        shares: [N], f.
        size: C, about; what the batch chose is always there.
        rng: on the device of the batch.
    """
    return pool_around(chosen.candidates, chosen.n_queries, shares, size, rng)


def pool_around(
    chosen: Tensor, n_queries: int, shares: Tensor, size: int, rng: torch.Generator
) -> Shared:
    """The same, given all that so many queries chose; repeats are fine."""
    n = len(shares)
    if size >= n:
        ids = torch.arange(n, device=rng.device)
        return Shared(ids, torch.zeros(n, device=rng.device))
    own = chosen.long().unique()
    draws = max(0, size - len(own))
    drawn = torch.randint(n, (draws,), generator=rng, device=rng.device)
    ids = torch.cat([own, drawn]).unique()
    absent = (n_queries - 1) * torch.log1p(-shares[ids]) + draws * math.log1p(-1 / n)
    return Shared(ids, torch.log(-torch.expm1(absent)))
