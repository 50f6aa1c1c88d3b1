"""The BPR loss matches its formula."""

from math import exp, log

import pytest
from pools import assert_by_hand, assert_zero_without_a_pair, loss_of_one_positive

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


def test_query_without_a_pair_costs_nothing() -> None:
    assert_zero_without_a_pair(bpr_loss)


def test_memory_is_that_of_the_positives_times_the_pool() -> None:
    n = 1_000_000  # [1, n, n] would be 4 TB
    assert loss_of_one_positive(bpr_loss, n) == pytest.approx(log(2), rel=1e-4)
