"""Regularisation that suits the noise of the pairs."""

import pytest
import torch

from rankfold.methods.noise_defaults import Noise


@pytest.mark.parametrize(("m", "n"), [(40, 1600), (400, 400), (1600, 40)])
def test_the_decay_is_the_largest_component_of_random_pairs(m: int, n: int) -> None:
    """In the gradient of the softmax loss at equal scores: what is smaller than it vanishes."""
    pairs = torch.rand(m, n, generator=torch.Generator().manual_seed(0)) < 0.05
    targets = pairs / pairs.sum(dim=1, keepdim=True).clamp(min=1)
    gradient = (targets - 1 / n)[pairs.any(dim=1)] / m
    pure_noise = Noise(1.0, 1.0, float(pairs.sum()), m, n)
    largest = float(torch.linalg.matrix_norm(gradient, 2))
    assert pure_noise.decay == pytest.approx(largest, rel=0.5)
