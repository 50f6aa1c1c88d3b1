"""Schedules of the learning rate over the epochs: pure functions, without state to save."""

import math
from collections.abc import Callable

Schedule = Callable[[float, float], float]
"""``(epochs done, all epochs) -> factor of the learning rate``."""

_STEP_EPOCHS, _STEP_FACTOR = 5, 0.95  # [bir]'s
_MILESTONES, _MILESTONE_FACTOR = (30 / 50, 45 / 50, 49 / 50), 0.75  # [siamesexml]'s release


def step(done: float, _epochs: float) -> float:
    """Times .95 after every five epochs."""
    return _STEP_FACTOR ** int(done // _STEP_EPOCHS)


def cosine(done: float, epochs: float) -> float:
    """From 1 down to 0 along half a cosine."""
    return 0.5 * (1 + math.cos(math.pi * min(1.0, done / epochs)))


def milestones(done: float, epochs: float) -> float:
    """Times .75 after 60%, 90% and 98% of the epochs: 30, 45 and 49 of 50."""
    return _MILESTONE_FACTOR ** sum(done >= share * epochs for share in _MILESTONES)


SCHEDULES: dict[str, Schedule] = {
    "constant": lambda _done, _epochs: 1.0,
    "step": step,
    "cosine": cosine,
    "linear": lambda done, epochs: max(0.0, 1 - done / epochs),
    "milestones": milestones,
}


def rate(schedule: Schedule, done: float, epochs: float, warmup: float) -> float:
    """The factor after ``done`` epochs, rising linearly over the first ``warmup`` of them."""
    if done < warmup:
        return min(1.0, (done + 1e-3) / warmup)  # not 0: the first batch would be lost
    return schedule(done - warmup, max(epochs - warmup, 1e-9))
