"""The BPR loss matches its formula."""

from math import exp, log

import pytest
import torch
from pools import assert_by_hand

from rankfold.losses.bpr import bpr_loss


def by_hand(positives: list[tuple[float, float]], negatives: list[float]) -> float:
    if not positives or not negatives:
        return 0.0
    total = 0.0
    for s, w in positives:
        total += w * sum(log(1 + exp(t - s)) for t in negatives) / len(negatives)
    return total / sum(w for _, w in positives)


@pytest.mark.parametrize("seed", range(5))
def test_value_matches_the_formula(seed: int) -> None:
    assert_by_hand(bpr_loss, by_hand, seed)


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
