"""The BPR loss is what its docstring says."""

from math import exp, log

import pytest
import torch
from torch import Tensor

from rankfold.losses.bpr import bpr_loss


def random_pool(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scores, grades, valid and weights of 6 queries; what is not valid is nan."""
    rng = torch.Generator().manual_seed(seed)
    scores = torch.randn(6, 8, generator=rng, dtype=torch.float64)
    valid = torch.rand(6, 8, generator=rng) > 0.3
    grades = torch.randint(-1, 3, (6, 8), generator=rng)
    weights = torch.rand(6, 8, generator=rng, dtype=torch.float64) + 0.1
    return scores.masked_fill(~valid, torch.nan), grades, valid, weights


def by_hand(positives: list[tuple[float, float]], negatives: list[float]) -> float:
    if not positives or not negatives:
        return 0.0
    total = 0.0
    for s, w in positives:
        total += w * sum(log(1 + exp(t - s)) for t in negatives) / len(negatives)
    return total / sum(w for _, w in positives)


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
        assert bpr_loss(scores, grades, valid, w).tolist() == pytest.approx(expected)


def test_gradient_is_that_of_the_formula() -> None:
    scores, grades, valid, weights = random_pool(7)
    scores = scores.nan_to_num().requires_grad_()
    assert torch.autograd.gradcheck(lambda s: bpr_loss(s, grades, valid, weights), (scores,))


@pytest.mark.parametrize("grade", [0, 1])
def test_query_without_a_pair_costs_nothing(grade: int) -> None:
    scores = torch.randn(2, 4, requires_grad=True)
    valid = torch.ones(2, 4, dtype=torch.bool)
    loss = bpr_loss(scores, torch.full((2, 4), grade), valid)
    loss.sum().backward()
    assert torch.equal(loss, torch.zeros(2))
    assert scores.grad is not None
    assert torch.equal(scores.grad, torch.zeros(2, 4))


def test_memory_is_that_of_the_positives_times_the_pool() -> None:
    n = 1_000_000  # [1, n, n] would be 4 TB
    grades = torch.zeros(1, n)
    grades[0, 5] = 1
    loss = bpr_loss(torch.zeros(1, n), grades, torch.ones(1, n, dtype=torch.bool))
    assert loss.item() == pytest.approx(log(2), rel=1e-4)
