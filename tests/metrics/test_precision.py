"""Precision equals its formula and a loop."""

from collections.abc import Callable

import pytest
import torch

from rankfold.metrics.hits import precision
from rankfold.metrics.judged import judge
from rankfold.types import Interactions

TRUTH = Interactions(torch.tensor([0, 3]), torch.tensor([0, 1, 2]), None, 6)


def test_value_matches_the_formula() -> None:
    judged = judge(torch.tensor([[2, 5, 0, 1]]), TRUTH)
    assert precision(judged, 3).item() == pytest.approx(2 / 3)


def test_a_short_list_is_divided_by_k() -> None:
    judged = judge(torch.tensor([[2, 0, -1, -1]]), TRUTH)
    assert precision(judged, 4).item() == 2 / 4
    assert precision(judged, 8).item() == 2 / 8  # and where there are fewer than k columns


def loop(returned: list[int], truth: dict[int, float], k: int) -> float:
    return sum(candidate in truth for candidate in returned[:k]) / k


def test_equals_a_loop(assert_equals_loop: Callable[..., None]) -> None:
    assert_equals_loop(precision, loop)
