"""The boundary loss is what its docstring says."""

from math import exp, log

import pytest
import torch
from torch import Tensor

from rankfold.losses.uib import uib_loss


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
    loss = sum(w * log(1 + exp(-s)) for s, w in positives) / sum(w for _, w in positives)
    if negatives:
        loss += sum(log(1 + exp(t)) for t in negatives) / len(negatives)
    return loss


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
        assert uib_loss(scores, grades, valid, w).tolist() == pytest.approx(expected)


def test_gradient_is_that_of_the_formula() -> None:
    scores, grades, valid, weights = random_pool(7)
    scores = scores.nan_to_num().requires_grad_()
    assert torch.autograd.gradcheck(lambda s: uib_loss(s, grades, valid, weights), (scores,))


def test_query_without_negatives_has_the_positives_term_alone() -> None:
    scores, grades = torch.tensor([[2.0, -1.0]]), torch.tensor([[1, 1]])
    loss = uib_loss(scores, grades, torch.ones(1, 2, dtype=torch.bool))
    assert loss.item() == pytest.approx((log(1 + exp(-2)) + log(1 + exp(1))) / 2)
