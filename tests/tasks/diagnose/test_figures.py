"""Intervals of figures: of means, of shares, and of values that come in groups."""

import pytest
import torch

from rankfold.tasks.diagnose.figures import Figure, by_group, mean_of, wilson
from rankfold.tasks.diagnose.result import DiagnosisResult


def test_a_share_of_none_or_all_has_an_interval() -> None:
    """Of 0 in 200, the true share may be as high as about 2 %."""
    none, every = mean_of(torch.zeros(200)), mean_of(torch.ones(200))
    assert none[:2] == (0, 0)
    assert none.high == pytest.approx(0.0188, abs=1e-4)
    assert every.value == every.high == 1
    assert every.low == pytest.approx(1 - 0.0188, abs=1e-4)


def test_the_interval_of_a_share_solves_its_equation() -> None:
    """Its ends are the shares p at which the observed one is 1.96 deviations away."""
    for end in wilson(0.3, 50):
        assert abs(0.3 - end) == pytest.approx(1.959964 * (end * (1 - end) / 50) ** 0.5)


def test_values_of_a_group_are_one_sample() -> None:
    """The mean is that of all values; equal values in a group do not narrow its interval."""
    rng = torch.Generator().manual_seed(0)
    values = torch.randn(40, generator=rng).double()
    groups = torch.arange(40)
    once = mean_of(by_group(values, groups, 41))
    often = mean_of(by_group(values.repeat_interleave(5), groups.repeat_interleave(5), 41))
    assert often == pytest.approx(once, rel=1e-4)
    uneven = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 0, 2])
    assert float(by_group(*uneven, 3).mean()) == pytest.approx(7 / 3)


def test_measurements_become_figures_and_plain_numbers() -> None:
    values, known = torch.tensor([1.0, 2.0, 4.0]), Figure(1.0, 0.5, 2.0)
    figures = {"mean": values, "number": 1 / 3, "scalar": values[1], "known": known}
    result = DiagnosisResult.of(figures, "x", {"a": {"b": values}, "c": [1 / 3], "d": "e"}, {})
    assert result.figures["mean"] == mean_of(values)
    assert result.figures["number"] == Figure(0.333333)
    assert result.figures["scalar"] == Figure(2.0)
    assert result.figures["known"] == known
    assert result.details == {"a": {"b": [1.0, 2.0, 4.0]}, "c": [0.333333], "d": "e"}
