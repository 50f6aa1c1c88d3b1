"""Isotonic regression: the definition by min and max over ranges, on random rows with ties."""

import numpy as np
import pytest
import torch

from rankfold.metrics.isotonic import isotonic


def by_definition(scores: torch.Tensor, positive: torch.Tensor) -> dict[float, float]:
    """p(s_i) = max over j <= i of min over k >= i of the mean from s_j to s_k."""
    distinct = scores.unique().tolist()
    own = [positive[scores == score].double() for score in distinct]
    values = {}
    for i, score in enumerate(distinct):
        values[score] = max(
            min(torch.cat(own[j : k + 1]).mean().item() for k in range(i, len(own)))
            for j in range(i + 1)
        )
    return values


@pytest.mark.parametrize("seed", range(6))
def test_values_are_those_of_the_definition(seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 12, (40,), generator=rng).double()
    positive = torch.rand(40, generator=rng) < scores / 15
    expected = by_definition(scores, positive)
    steps = isotonic(scores, positive)
    at = torch.tensor(list(expected), dtype=torch.float64)
    assert steps.at(at.numpy()).tolist() == pytest.approx(list(expected.values()))
    assert (np.diff(steps.values) >= 0).all()


def test_nested_thresholds_never_cross_and_the_ends_are_constant() -> None:
    rng = torch.Generator().manual_seed(9)
    scores = torch.randn(300, generator=rng)
    grades = torch.bucketize(scores + torch.randn(300, generator=rng), torch.tensor([0.0, 1.0]))
    low, high = (isotonic(scores, grades > k) for k in range(2))
    everywhere = np.linspace(-5, 5, 400)
    assert (low.at(everywhere) >= high.at(everywhere)).all()
    assert low.at(np.array([-9.0])).item() == low.values[0]
    assert low.at(np.array([9.0])).item() == low.values[-1]


def test_probabilities_of_one_kind_of_row() -> None:
    for positive in (torch.zeros(9, dtype=torch.bool), torch.ones(9, dtype=torch.bool)):
        values = isotonic(torch.randn(9), positive).at(np.zeros(2))
        assert (values == float(positive[0])).all()
