"""Hit equals its formula and a loop."""

from collections.abc import Callable

import torch

from rankfold.metrics.hits import hit
from rankfold.metrics.judged import judge
from rankfold.types import Interactions

TRUTH = Interactions(torch.tensor([0, 2]), torch.tensor([0, 1]), None, 6)


def test_value_matches_the_formula() -> None:
    judged = judge(torch.tensor([[5, 4, 1, 0]]), TRUTH)
    assert hit(judged, 2).tolist() == [0.0]
    assert hit(judged, 3).tolist() == [1.0]
    assert hit(judged, 4).tolist() == [1.0]  # two of them count once


def loop(returned: list[int], truth: dict[int, float], k: int) -> float:
    return float(any(candidate in truth for candidate in returned[:k]))


def test_equals_a_loop(assert_equals_loop: Callable[..., None]) -> None:
    assert_equals_loop(hit, loop)
