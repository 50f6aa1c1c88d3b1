"""The cost of errors, and how far a column has drifted."""

import pytest
import torch

from rankfold.errors import UserError
from rankfold.metrics.costs import Costs, cost_curve, expected_cost, parse_costs
from rankfold.metrics.drift import stability


def test_costs_are_counted_by_a_loop() -> None:
    rng = torch.Generator().manual_seed(0)
    p = torch.rand(50, generator=rng, dtype=torch.float64)
    positive = torch.rand(50, generator=rng) < p
    costs = parse_costs("1,4")
    assert costs.cut == pytest.approx(0.2)
    total = sum(
        (1.0 if not truth else 0.0) if value > 0.2 else (4.0 if truth else 0.0)
        for value, truth in zip(p.tolist(), positive.tolist(), strict=True)
    )
    found = expected_cost(p, positive, costs)
    assert found.cost == pytest.approx(total / 50)
    assert found.none == pytest.approx(4 * positive.double().mean().item())
    assert found.all == pytest.approx(1 - positive.double().mean().item())


def test_right_probabilities_are_never_dearer_than_a_constant_rule() -> None:
    """Rows in groups with exactly their probability of positives."""
    p = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64).repeat_interleave(10)
    positive = torch.tensor([1] + [0] * 9 + [1] * 5 + [0] * 5 + [1] * 9 + [0]) > 0
    curve = cost_curve(p, positive)
    assert len(curve) == 19
    assert all(cost.cost <= min(cost.none, cost.all) + 1e-12 for _, cost in curve)
    share, middle = curve[9]
    assert share == pytest.approx(0.5)
    assert middle == expected_cost(p, positive, Costs(0.5, 0.5))


@pytest.mark.parametrize("given", ["1", "1,2,3", "a,b", "0,1", [1.0], "1,inf", "nan,1"])
def test_other_costs_are_refused(given: object) -> None:
    with pytest.raises(UserError, match="costs must be two numbers above 0"):
        parse_costs(given)  # type: ignore[arg-type]


def test_stability_is_the_written_formula() -> None:
    fitted, seen = torch.tensor([8.5, 1.5, 0.0]), torch.tensor([3.5, 6.5, 0.0])
    p, q = torch.tensor([9.0, 2.0]) / 11, torch.tensor([4.0, 7.0]) / 11
    expected = ((q - p) * (q / p).log()).sum().item()
    assert stability(fitted, seen).psi == pytest.approx(expected, rel=1e-6)


def test_equal_populations_drift_by_chance_only() -> None:
    """Of 400 pairs of small and of large samples from one population, none is above its limit."""
    rng = torch.Generator().manual_seed(0)
    for n, m in ((5000, 40), (300, 300)):
        bins = torch.randint(0, 11, (200, n + m), generator=rng)
        for row in bins:
            fitted, seen = (torch.bincount(some, minlength=11) for some in row.split([n, m]))
            drift = stability(fitted, seen)
            assert drift.psi <= drift.limit
