"""Isotonic regression: from scores to probabilities that rise with them."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]


class Steps(NamedTuple):
    """A function that rises in steps, joined by straight lines; constant beyond its ends."""

    scores: Floats  # [k] ascending
    values: Floats  # [k] not descending

    def at(self, scores: Floats) -> Floats:
        """The values at some scores; [n]."""
        return np.interp(scores, self.scores, self.values)


def isotonic(scores: Tensor, positive: Tensor) -> Steps:
    """The rising probabilities of least squared error, by pooling adjacent violators.

    With y_i 1 for a positive row and 0 for another::

        minimise sum_i (p(s_i) - y_i)^2   subject to   p(s_i) <= p(s_j) where s_i <= s_j

    Rows of equal scores are one. Of two labellings of the same rows, one positive wherever the
    other is, the first has no smaller value anywhere: probabilities of nested thresholds never
    cross. Scores [n], at least one.
    """
    distinct, places = scores.double().unique(return_inverse=True)
    counts = torch.bincount(places).tolist()
    sums = torch.bincount(places, positive.double()).tolist()
    blocks: list[tuple[float, int, int]] = []  # positives, rows, first distinct score
    for place, (total, count) in enumerate(zip(sums, counts, strict=True)):
        first = place
        while blocks and blocks[-1][0] * count >= total * blocks[-1][1]:
            before = blocks.pop()
            total, count, first = total + before[0], count + before[1], before[2]
        blocks.append((total, count, first))
    starts = np.array([block[2] for block in blocks])
    ends = np.append(starts[1:], len(distinct)) - 1
    values = np.array([block[0] / block[1] for block in blocks])
    knots = np.unique(np.concatenate([starts, ends]))
    at = np.searchsorted(starts, knots, side="right") - 1
    return Steps(distinct.numpy()[knots], values[at])
