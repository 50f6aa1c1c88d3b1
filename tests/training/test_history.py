"""When a fit is over: after its last step, or without a better score for long enough."""

import pytest

from rankfold.training.history import FULL_STEP, History
from rankfold.types import Model, Step


def steps_until_over(updates: int | None, patience: int) -> int:
    """The steps of a fit whose first score is its best."""
    history, model = History(), Model("m", {}, {})
    for number in range(1, 1000):
        step = Step(number, 0.0, 0.0, model, dict, final=False, updates=updates)
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
    step = Step(1, 0.0, 0.0, Model("m", {}, {}), dict, final=True, updates=1)
    history.note(step, 1.0)
    assert history.is_over(step, patience=3)
