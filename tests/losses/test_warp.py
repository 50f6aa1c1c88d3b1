"""The WARP loss matches its formula."""

from math import log

import pytest
import torch
from pools import assert_by_hand, assert_zero_without_a_pair, loss_of_one_positive

from rankfold.losses.warp import warp_loss


def by_hand(positives: list[tuple[float, float]], negatives: list[float]) -> float:
    if not positives or not negatives:
        return 0.0
    total = 0.0
    for s, w in positives:
        violations = [1 - s + t for t in negatives if t > s - 1]
        r = len(violations)
        if r:
            total += w * sum(1 / i for i in range(1, r + 1)) * sum(violations) / r
    return total / sum(w for _, w in positives)


@pytest.mark.parametrize("seed", range(5))
def test_value_matches_the_formula(seed: int) -> None:
    assert_by_hand(warp_loss, by_hand, seed)


def test_query_without_a_pair_costs_nothing() -> None:
    assert_zero_without_a_pair(warp_loss)


def test_memory_is_that_of_the_positives_times_the_pool() -> None:
    n = 1_000_000  # [1, n, n] would be 4 TB
    assert loss_of_one_positive(warp_loss, n) == pytest.approx(log(n - 1) + 0.5772157, rel=1e-4)


def test_more_violations_weigh_more() -> None:
    scores, grades = torch.tensor([[0.0, 0.5, 0.5, 0.5, -2.0]]), torch.tensor([[1, 0, 0, 0, 0]])
    few = torch.tensor([[True, True, False, False, True]])
    many = torch.tensor([[True, True, True, True, True]])
    assert warp_loss(scores, grades, few).item() == pytest.approx(1.5)
    assert warp_loss(scores, grades, many).item() == pytest.approx(1.5 * (1 + 1 / 2 + 1 / 3))
