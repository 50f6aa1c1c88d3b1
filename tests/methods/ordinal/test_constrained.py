"""eban: the Lagrange multipliers."""

import torch

from rankfold.methods.ordinal import constrained


def test_duals_climb_by_the_excess_and_stay_in_range() -> None:
    duals = constrained.Duals(2, 0.5, torch.device("cpu"))
    duals.climb(torch.tensor([0.2, -9.0]))
    torch.testing.assert_close(duals.values, torch.tensor([1.1, 0.0]))
    duals.climb(torch.tensor([1e9, 0.0]))
    torch.testing.assert_close(duals.values, torch.tensor([1e5, 0.0]))
