"""Average precision equals its formula and a loop."""

from collections.abc import Callable

import pytest
import torch

from rankfold.metrics.hits import average_precision
from rankfold.metrics.judged import judge
from rankfold.types import Interactions

TRUTH = Interactions(torch.tensor([0, 3]), torch.tensor([0, 1, 2]), None, 6)


def test_value_matches_the_formula() -> None:
    judged = judge(torch.tensor([[5, 1, 2, 4]]), TRUTH)
    assert average_precision(judged, 4).item() == pytest.approx((1 / 2 + 2 / 3) / 3)


def test_more_positives_than_k_stay_below_one() -> None:
    judged = judge(torch.tensor([[0, 1, 2]]), TRUTH)
    assert average_precision(judged, 2).item() == pytest.approx(2 / 3)


def loop(returned: list[int], truth: dict[int, float], k: int) -> float:
    hits, total = 0, 0.0
    for place, candidate in enumerate(returned[:k]):
        if candidate in truth:
            hits += 1
            total += hits / (place + 1)
    return total / len(truth) if truth else 0.0


def test_equals_a_loop(assert_equals_loop: Callable[..., None]) -> None:
    assert_equals_loop(average_precision, loop)
