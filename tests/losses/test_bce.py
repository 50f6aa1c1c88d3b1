"""Binary cross-entropy is what its docstring says."""

from math import exp, log

import pytest
import torch
from torch import Tensor

from rankfold.losses.bce import bce_loss


def random_pool(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scores, grades, valid and weights of 6 queries; what is not valid is nan."""
    rng = torch.Generator().manual_seed(seed)
    scores = torch.randn(6, 8, generator=rng, dtype=torch.float64)
    valid = torch.rand(6, 8, generator=rng) > 0.3
    grades = torch.randint(-1, 3, (6, 8), generator=rng)
    weights = torch.rand(6, 8, generator=rng, dtype=torch.float64) + 0.1
    return scores.masked_fill(~valid, torch.nan), grades, valid, weights


def by_hand(positives: list[tuple[float, float]], negatives: list[float]) -> float:
    if not positives:
        return 0.0
    up = sum(w * -log(1 / (1 + exp(-s))) for s, w in positives) / sum(w for _, w in positives)
    down = sum(-log(1 - 1 / (1 + exp(-t))) for t in negatives) / len(positives)
    return up + down


@pytest.mark.parametrize("seed", range(5))
def test_value_is_the_written_formula(seed: int) -> None:
    scores, grades, valid, weights = random_pool(seed)
    for w in (weights, None):
        expected = []
        for b in range(len(scores)):
            places = [c for c in range(8) if valid[b, c]]
            positives = [
                (scores[b, c].item(), 1.0 if w is None else w[b, c].item())
                for c in places
                if grades[b, c] > 0
            ]
            negatives = [scores[b, c].item() for c in places if grades[b, c] <= 0]
            expected.append(by_hand(positives, negatives))
        assert bce_loss(scores, grades, valid, w).tolist() == pytest.approx(expected)


def test_gradient_is_that_of_the_formula() -> None:
    scores, grades, valid, weights = random_pool(7)
    scores = scores.nan_to_num().requires_grad_()
    assert torch.autograd.gradcheck(lambda s: bce_loss(s, grades, valid, weights), (scores,))


def test_one_positive_is_plain_cross_entropy() -> None:
    scores, grades = torch.tensor([[2.0, 1.0, -3.0]]), torch.tensor([[0, 1, 0]])
    expected = torch.nn.functional.binary_cross_entropy_with_logits(
        scores, grades.float(), reduction="sum"
    )
    torch.testing.assert_close(
        bce_loss(scores, grades, torch.ones(1, 3, dtype=torch.bool))[0], expected
    )
