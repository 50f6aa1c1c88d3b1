"""The choice of settings that were left open, on validation, around those that the noise suggests.

All points are compared after a few sweeps from the same vectors. The choice is at most 12 sweeps
and six validations more than a fit without it.
"""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from rankfold.methods.noise import Noise

WARM_UP = 2  # sweeps with the first point, from whose vectors all points start
SWEEPS = 2  # with each point
_FACTOR = 3.0  # between neighbouring points
_MAX_MOVES = 2  # in a direction

Vectors = tuple[Tensor, Tensor]  # of the queries and of the candidates


class Tried(NamedTuple):
    """A point after its sweeps, with its validation score."""

    noise: Noise
    vectors: Vectors
    score: float


def choose(first: Noise, attempt: Callable[[Noise], Tried]) -> Tried:
    """The best point uphill from the first: along the regularisation, then along the ratio."""
    best = attempt(first)
    for reg, ratio in ((_FACTOR, 1.0), (1.0, _FACTOR)):
        before = best
        for direction in (1, -1):
            for _ in range(_MAX_MOVES):
                now = attempt(best.noise.moved(reg**direction, ratio**direction))
                if now.score <= best.score:
                    break
                best = now
            if best is not before:
                break
    return best
