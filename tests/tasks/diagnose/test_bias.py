"""The bias of BIR's gradient and Theorem A.2, by enumeration of all batches and picks."""

import math
from itertools import product

import pytest
import torch

from rankfold.tasks.diagnose.bias import bias_of

SCORES = torch.tensor([0.3, -0.8, 1.1], dtype=torch.float64)
POPULARITY = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
VECTORS = torch.tensor([[1.0, 0.2], [-0.5, 0.7], [0.3, -1.0]], dtype=torch.float64)


def enumerated(positive: int) -> dict[str, torch.Tensor]:
    """Mean gradients over batches of 2 and 2 picks, less softmax's; the mean of the bound."""
    e, p = SCORES.exp().tolist(), POPULARITY.tolist()
    z = sum(e)
    u = sum(e[j] * VECTORS[j] for j in range(3))
    g = VECTORS.abs().max().item()
    result = {
        name: torch.zeros(2, dtype=torch.float64) for name in ("appendix", "released", "bound")
    }
    for batch in product(range(3), repeat=2):
        chance = math.prod(p[j] for j in batch)
        z_b, z_bp = sum(e[j] for j in batch), sum(e[j] / p[j] for j in batch)
        mixed = sum(e[j] * p[j] for j in batch)
        apart = abs(p[batch[0]] - p[batch[1]])
        bound = u * (mixed * z_bp - z_b**2) / (2 * z**3)
        bound = bound + (2 * g / 2) * apart * z_bp * z_b / (z**2 + mixed * z_bp)
        result["bound"] += chance * bound
        w = [e[j] / p[j] / z_bp for j in batch]
        for picks in product(range(2), repeat=2):
            likely = chance * w[picks[0]] * w[picks[1]]
            for form in ("appendix", "released"):
                mass = [e[batch[c]] / (2 * w[c] if form == "appendix" else 1) for c in picks]
                top = e[positive] * VECTORS[positive]
                top = top + sum(m * VECTORS[batch[c]] for m, c in zip(mass, picks, strict=True))
                result[form] += likely * (top / (e[positive] + sum(mass)) - u / z)
    return result


def test_bias_and_bound_equal_an_enumeration() -> None:
    rng = torch.Generator().manual_seed(0)
    measured = bias_of(SCORES, VECTORS, 1, POPULARITY, 2, 2**19, rng)
    for name, expected in enumerated(1).items():
        assert getattr(measured, name).tolist() == pytest.approx(expected.tolist(), abs=0.004), name


def test_scaling_the_scores_mass_changes_nothing() -> None:
    """A constant in all scores leaves softmax, BIR and the bound as they are."""
    one, other = (
        bias_of(SCORES + shift, VECTORS, 1, POPULARITY, 4, 2**12, torch.Generator().manual_seed(1))
        for shift in (0.0, 700.0)
    )
    for left, right in zip(one, other, strict=True):
        assert left.tolist() == pytest.approx(right.tolist(), rel=1e-6)


def test_the_bound_fails_on_a_toy_of_200_candidates() -> None:
    """Logits as parameters: the gradient of a score is a unit vector, so G = 1."""
    rng = torch.Generator().manual_seed(0)
    scores = torch.randn(200, generator=rng, dtype=torch.float64)
    popularity = 1 / torch.arange(1, 201, dtype=torch.float64)
    popularity /= popularity.sum()
    measured = bias_of(scores, torch.eye(200).double(), 0, popularity, 64, 2**15, rng)
    place = int((measured.appendix - measured.bound).argmax())
    assert measured.appendix[place] > 1.2 * measured.bound[place]
