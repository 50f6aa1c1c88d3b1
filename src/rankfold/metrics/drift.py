"""How far the values of a column have moved: the population stability index."""

from typing import NamedTuple

import torch
from torch import Tensor

_DRIFTED = 0.25  # by custom, a large change
_HALF = 0.5  # added to every count: an empty bin has a logarithm


class Drift(NamedTuple):
    """How far a column has moved between two sets of rows."""

    psi: float
    limit: float  # above it, the column has drifted by more than chance


def stability(fitted: Tensor, seen: Tensor) -> Drift:
    """The population stability index of counts by bin [B], of the fitted and of other rows.

    With p and q the shares of the bins, after half a row is added to each::

        psi = sum_b (q_b - p_b) log(q_b / p_b)

    Among equal populations its mean is about (B - 1) (1/n + 1/m), its deviation that times
    sqrt(2 / (B - 1)). The limit is .25, the usual one, or five deviations above this mean: few rows
    drift by chance. Bins that are empty in both do not count.
    """
    used = (fitted > 0) | (seen > 0)
    p, q = (counts[used].double() + _HALF for counts in (fitted, seen))
    p, q = p / p.sum(), q / q.sum()
    psi = float(((q - p) * (q / p).log()).sum())
    free = max(1, int(used.sum()) - 1)
    scale = 1 / max(1.0, float(fitted.sum())) + 1 / max(1.0, float(seen.sum()))
    return Drift(psi, max(_DRIFTED, (free + 5 * (2 * free) ** 0.5) * scale))


def counts_of(bins: Tensor, n: int) -> Tensor:
    """How many values are in each of n bins; [n] float64."""
    return torch.bincount(bins, minlength=n).double()
