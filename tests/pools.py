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
