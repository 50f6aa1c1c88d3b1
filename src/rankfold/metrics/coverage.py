"""Coverage: the share of candidates that any query got. One value for all queries."""

import torch
from torch import Tensor


def coverage(returned: Tensor) -> Tensor:
    """Share of the candidates that at least one query got, from ``count_returned`` [N].

    ::

        coverage = 1/N sum_y (returned_y > 0)

    Returns a scalar, and 0 without candidates.
    """
    return (returned > 0).sum() / max(len(returned), 1)


def count_returned(ids: Tensor, k: int, n_candidates: int) -> Tensor:
    """How many of B queries got each candidate among their first k results; [N] int64.

    ``ids`` are [B, K], best first, -1 pads. The counts of several batches add up to those of all.
    """
    first = ids[:, :k]
    return torch.bincount(first[first >= 0], minlength=n_candidates)
