"""Reciprocal rank equals its formula and a loop."""

from collections.abc import Callable

import torch

from rankfold.metrics.hits import reciprocal_rank
from rankfold.metrics.judged import judge
from rankfold.types import Interactions

TRUTH = Interactions(torch.tensor([0, 2]), torch.tensor([0, 1]), None, 6)


def test_value_matches_the_formula() -> None:
    judged = judge(torch.tensor([[5, 4, 3, 1, 0]]), TRUTH)
    assert reciprocal_rank(judged, 5).tolist() == [1 / 4]
    assert reciprocal_rank(judged, 4).tolist() == [1 / 4]
    assert reciprocal_rank(judged, 3).tolist() == [0.0]


def loop(returned: list[int], truth: dict[int, float], k: int) -> float:
    for place, candidate in enumerate(returned[:k]):
        if candidate in truth:
            return 1 / (place + 1)
    return 0.0


def test_equals_a_loop(assert_equals_loop: Callable[..., None]) -> None:
    assert_equals_loop(reciprocal_rank, loop)
