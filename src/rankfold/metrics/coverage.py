"""Coverage: how much of the catalogue anyone gets to see. A value of all queries together."""

from collections.abc import Callable

import torch
from torch import Tensor

ShownMetric = Callable[[Tensor], Tensor]
"""``(shown [N]) -> []`` float32: one value of all queries together."""


def coverage(shown: Tensor) -> Tensor:
    """Share of the candidates that at least one query got.

    ::

        coverage = 1/N sum_y (shown_y > 0)

    Args:
        shown: [N], how many queries got each candidate; see `count_shown`.

    Returns:
        A scalar, and 0 where there are no candidates.
    """
    return (shown > 0).sum() / max(len(shown), 1)


def count_shown(ids: Tensor, k: int, n_candidates: int) -> Tensor:
    """How many of B queries got each candidate among their first k results; [N] int64.

    The counts of several batches add up to those of all.

    Args:
        ids: [B, K] int64, best first, -1 pads.
        k: how many results count; all where k > K.
        n_candidates: N.
    """
    first = ids[:, :k]
    return torch.bincount(first[first >= 0], minlength=n_candidates)
