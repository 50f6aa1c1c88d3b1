"""The choice of settings that were left open, on validation, around those that the noise suggests.

All points are compared after a few sweeps from the same vectors. The choice costs at most 14 sweeps
and seven validations.
"""

from collections.abc import Callable

from rankfold.methods.noise import Noise

WARM_UP = 2  # sweeps with the first point, from whose vectors all points start
SWEEPS = 2  # with each point
_FACTOR = 3.0  # between neighbouring points
_MAX_MOVES = 2  # in a direction


def choose(best: Noise, score: Callable[[Noise], float]) -> Noise:
    """The best point uphill from a first one: along the regularisation, then along the ratio."""
    highest = score(best)
    for reg, ratio in ((_FACTOR, 1.0), (1.0, _FACTOR)):
        before = best
        for direction in (1, -1):
            for _ in range(_MAX_MOVES):
                point = best.moved(reg**direction, ratio**direction)
                value = score(point)
                if not value > highest:  # nor without validation queries
                    break
                best, highest = point, value
            if best is not before:
                break
    return best
