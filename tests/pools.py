"""Random pools of candidates, and losses on them by plain loops."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rankfold.types import Loss

ByHand = Callable[[list[tuple[float, float]], list[float]], float]
"""Scores and weights of the positives, scores of the others -> the loss of a query."""


def random_pool(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scores, grades, valid and weights of 6 queries; invalid scores are NaN."""
    rng = torch.Generator().manual_seed(seed)
    scores = torch.randn(6, 8, generator=rng, dtype=torch.float64)
    valid = torch.rand(6, 8, generator=rng) > 0.3
    grades = torch.randint(-1, 3, (6, 8), generator=rng)
    weights = torch.rand(6, 8, generator=rng, dtype=torch.float64) + 0.1
    return scores.masked_fill(~valid, torch.nan), grades, valid, weights


def assert_by_hand(loss: Loss, by_hand: ByHand, seed: int) -> None:
    """Assert that the loss equals the loops, with weights and without."""
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
        assert loss(scores, grades, valid, w).tolist() == pytest.approx(expected)


def assert_zero_without_a_pair(loss: Loss) -> None:
    """Assert that queries with positives only, or without any, have no loss and no gradient."""
    for grade in (0, 1):
        scores = torch.randn(2, 4, requires_grad=True)
        values = loss(scores, torch.full((2, 4), grade), torch.ones(2, 4, dtype=torch.bool))
        values.sum().backward()
        assert values.tolist() == [0, 0]
        assert scores.grad is not None
        assert not scores.grad.any()


def loss_of_one_positive(loss: Loss, n: int) -> float:
    """The loss of one positive among ``n`` equal scores."""
    grades = torch.zeros(1, n)
    grades[0, 5] = 1
    return loss(torch.zeros(1, n), grades, torch.ones(1, n, dtype=torch.bool)).item()


def sparsemax_threshold(scores: list[float]) -> float:
    """The number tau with sum_j [s_j - tau]_+ = 1, by halving."""
    low, high = max(scores) - 1, max(scores)
    for _ in range(200):
        tau = (low + high) / 2
        if sum(max(0, s - tau) for s in scores) > 1:
            low = tau
        else:
            high = tau
    return low
