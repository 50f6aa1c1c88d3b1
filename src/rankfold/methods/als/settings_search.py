"""The choice of settings that were left open, on validation, around those that the noise suggests.

All points are compared after a few sweeps from the same vectors. The choice costs at most 18 sweeps
and nine validations.
"""

from collections.abc import Callable

from rankfold.methods.noise_defaults import Noise

WARM_UP = 2  # sweeps with the first point, from whose vectors all points start
SWEEPS = 2  # with each point
_WALKS = (  # factors of reg and ratio between neighbours, most steps in a direction
    ((3.0, 1.0), 2),
    ((1.0, 3.0), 2),
    ((3.0**0.5, 1.0), 1),  # the best regularisation is often narrow
)


def choose(best: Noise, score: Callable[[Noise], float]) -> Noise:
    """The best point uphill from a first one, along each of the walks."""
    highest = score(best)
    for (reg, ratio), most in _WALKS:
        before = best
        for direction in (1, -1):
            for _ in range(most):
                point = best.moved(reg**direction, ratio**direction)
                value = score(point)
                if not value > highest:  # nor without validation queries
                    break
                best, highest = point, value
            if best is not before:
                break
    return best
