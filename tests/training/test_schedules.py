"""Schedules of the learning rate, by hand."""

import pytest

from rankfold.training.schedules import SCHEDULES, cosine, milestones, rate, step


def test_steps_of_five_epochs() -> None:
    assert [step(done, 50) for done in (0, 4.99, 5, 11)] == pytest.approx([1, 1, 0.95, 0.95**2])


def test_cosine_falls_from_one_to_zero() -> None:
    result = [cosine(done, 10) for done in (0, 2.5, 5, 10, 11)]
    assert result == pytest.approx([1, 0.8535534, 0.5, 0, 0])


@pytest.mark.parametrize("epochs", [50, 100, 20])
def test_milestones_scale_with_the_epochs(epochs: int) -> None:
    """Times .75 at 30, 45 and 49 of 50."""
    places = [0, 29.9, 30, 44.9, 45, 48.9, 49, 50]
    result = [milestones(place * epochs / 50, epochs) for place in places]
    assert result == pytest.approx([0.75**n for n in (0, 0, 1, 1, 2, 2, 3, 3)])


def test_warm_up_rises_to_the_schedule_without_a_zero() -> None:
    assert 0 < rate(SCHEDULES["constant"], 0, 10, 2) < 0.001
    assert rate(SCHEDULES["constant"], 1, 10, 2) == pytest.approx(0.5, abs=1e-3)
    assert rate(SCHEDULES["constant"], 2, 10, 2) == 1
    assert rate(cosine, 2, 10, 2) == 1
    assert rate(cosine, 6, 10, 2) == pytest.approx(0.5)
    assert rate(cosine, 10, 10, 2) == pytest.approx(0)
    assert rate(step, 7, 10, 2) == pytest.approx(0.95)


def test_warm_up_never_exceeds_the_rate() -> None:
    for warmup in (1e-5, 1e-3, 0.1, 3.0):
        assert all(
            rate(SCHEDULES["constant"], warmup * part / 50, 10, warmup) <= 1 for part in range(51)
        )
