"""When a fit is over, and how long its steps take."""

import time
from collections.abc import Iterator

import pytest

from rankfold.training.early_stopping import FULL_STEP, History, timed
from rankfold.types import Model, Step


def steps_until_over(updates: int | None, patience: int) -> int:
    """The steps of a fit whose first score is its best."""
    history, model = History(), Model("m", {}, {})
    for number in range(1, 1000):
        step = Step(number, 0.0, model, dict, final=False, updates=updates)
        history.note(step, 1.0 / number)
        if history.is_over(step, patience):
            return number
    raise AssertionError("the fit never ends")


@pytest.mark.parametrize(
    ("updates", "steps"),
    [
        (None, 4),  # sweeps and passes are whole steps
        (FULL_STEP, 4),
        (10 * FULL_STEP, 4),
        (FULL_STEP // 2, 7),
        (1, 1 + 3 * FULL_STEP),  # an epoch of one batch hardly counts
    ],
)
def test_patience_counts_updates_where_epochs_are_short(updates: int | None, steps: int) -> None:
    assert steps_until_over(updates, patience=3) == steps


def test_the_last_step_ends_a_fit() -> None:
    history = History()
    step = Step(1, 0.0, Model("m", {}, {}), dict, final=True, updates=1)
    history.note(step, 1.0)
    assert history.is_over(step, patience=3)


def test_times_include_the_start_and_exclude_what_happens_between_steps() -> None:
    pause = 0.05

    def fit() -> Iterator[Step]:
        time.sleep(pause)  # before the first step

        def steps() -> Iterator[Step]:
            for whole in (False, True, True):
                time.sleep(pause)
                yield Step(1, 0.0, None, dict, final=False, whole=whole)

        return steps()

    seconds = []
    for step in timed(fit, before=1.0):
        seconds.append(step.seconds)
        time.sleep(4 * pause)  # validation
    least = [1 + 2 * pause, 1 + 3 * pause, pause]
    assert all(one >= low for one, low in zip(seconds, least, strict=True))
    assert seconds[1] - seconds[0] < 4 * pause  # without the time between the steps
    assert seconds[2] < 4 * pause
