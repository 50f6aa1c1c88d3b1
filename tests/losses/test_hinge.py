"""The hinge loss matches its formula."""

import pytest
import torch
from pools import assert_by_hand, assert_zero_without_a_pair, loss_of_one_positive

from rankfold.losses.hinge import hinge_loss


def by_hand(positives: list[tuple[float, float]], negatives: list[float]) -> float:
    if not positives or not negatives:
        return 0.0
    total = 0.0
    for s, w in positives:
        for t in negatives:
            if t > s - 1:
                total += w * (1 - s + t)
    return total / len(negatives) / sum(w for _, w in positives)


@pytest.mark.parametrize("seed", range(5))
def test_value_matches_the_formula(seed: int) -> None:
    assert_by_hand(hinge_loss, by_hand, seed)


def test_query_without_a_pair_costs_nothing() -> None:
    assert_zero_without_a_pair(hinge_loss)


def test_memory_is_that_of_the_positives_times_the_pool() -> None:
    n = 1_000_000  # [1, n, n] would be 4 TB
    assert loss_of_one_positive(hinge_loss, n) == pytest.approx(1.0, rel=1e-4)


def test_a_margin_of_1_is_enough() -> None:
    scores, grades = torch.tensor([[2.0, 1.0, -3.0]]), torch.tensor([[1, 0, 0]])
    assert hinge_loss(scores, grades, torch.ones(1, 3, dtype=torch.bool)).item() == 0
