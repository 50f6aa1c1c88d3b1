"""One pool of candidates for a batch of queries: all of their positives, and random ones."""

import math
from typing import NamedTuple

import torch
from torch import Tensor


class BatchPool(NamedTuple):
    """The pool, and the probability that a candidate is in it without this query's choice."""

    ids: Tensor  # [C] int64, ascending
    log_q: Tensor  # [C]


def pool_around(
    chosen: Tensor, n_queries: int, shares: Tensor, size: int, rng: torch.Generator
) -> BatchPool:
    """All candidates that the batch chose, filled up to about ``size`` by uniform draws.

    A candidate y that a share f_y of the queries chose is in the pool of B queries and E draws, for
    a query that did not choose it, with probability ::

        q_y = 1 - (1 - f_y)^(B - 1) (1 - 1/N)^E

    Scores minus log q weigh the rivals as if all candidates were in the pool. Without that, popular
    ones, which are in nearly every pool, would be pushed down too often. With a ``size`` of at
    least N the pool has all candidates, and log q is 0.

    Args:
        chosen: the candidates of the batch, possibly with repeats.
        n_queries: B.
        shares: f, [N].
        size: C, about; the candidates of the batch are always there.
        rng: on the device of the batch.
    """
    n = len(shares)
    if size >= n:
        ids = torch.arange(n, device=rng.device)
        return BatchPool(ids, torch.zeros(n, device=rng.device))
    own = chosen.long().unique()
    draws = max(0, size - len(own))
    drawn = torch.randint(n, (draws,), generator=rng, device=rng.device)
    ids = torch.cat([own, drawn]).unique()
    absent = (n_queries - 1) * torch.log1p(-shares[ids]) + draws * math.log1p(-1 / n)
    return BatchPool(ids, torch.log(-torch.expm1(absent)))
