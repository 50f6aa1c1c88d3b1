"""Coverage and Gini: how many candidates any query got, and how evenly. One value for all."""

import torch
from torch import Tensor


def coverage(returned: Tensor) -> Tensor:
    """Share of the candidates that at least one query got, from ``count_returned`` [N].

    ::

        coverage = 1/N sum_y (returned_y > 0)

    Returns a scalar, and 0 without candidates.
    """
    return (returned > 0).sum() / max(len(returned), 1)


def gini(returned: Tensor) -> Tensor:
    """The Gini coefficient of how often candidates were returned, from ``count_returned`` [N].

    With the counts in ascending order, r_1 to r_N::

        gini = sum_i (2 i - N - 1) r_i / (N sum_i r_i)

    Returns a scalar: 0 if all are returned equally often, nearly 1 if one is always, 0 for none.
    """
    ascending = returned.double().sort().values
    n, total = len(ascending), float(ascending.sum())
    places = 2 * torch.arange(1, n + 1, dtype=torch.float64) - n - 1
    return ((places * ascending).sum() / max(n * total, 1.0)).float()


def count_returned(ids: Tensor, k: int, n_candidates: int) -> Tensor:
    """How many of B queries got each candidate among their first k results; [N] int64.

    ``ids`` are [B, K], best first, -1 pads. The counts of several batches add up to those of all.
    """
    first = ids[:, :k]
    return torch.bincount(first[first >= 0], minlength=n_candidates)
