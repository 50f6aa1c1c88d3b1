"""Recall equals its formula and a loop."""

from collections.abc import Callable

import pytest
import torch

from rankfold.metrics.hits import recall, recall_capped
from rankfold.metrics.judged import judge
from rankfold.types import Interactions

TRUTH = Interactions(torch.tensor([0, 3]), torch.tensor([0, 1, 2]), None, 6)


def test_value_matches_the_formula() -> None:
    judged = judge(torch.tensor([[2, 5, 0, 1]]), TRUTH)
    assert recall(judged, 3).item() == pytest.approx(2 / 3)


def test_divides_by_all_positives_even_if_more_than_k() -> None:
    judged = judge(torch.tensor([[2, 0, 1, 5]]), TRUTH)
    assert recall(judged, 1).item() == pytest.approx(1 / 3)


def loop(returned: list[int], truth: dict[int, float], k: int) -> float:
    return len(set(returned[:k]) & set(truth)) / len(truth) if truth else 0.0


def test_equals_a_loop(assert_equals_loop: Callable[..., None]) -> None:
    assert_equals_loop(recall, loop)


def test_capped_recall_divides_by_at_most_k() -> None:
    judged = judge(torch.tensor([[2, 0, 5, 1]]), TRUTH)
    assert recall_capped(judged, 1).item() == pytest.approx(1)
    assert recall_capped(judged, 2).item() == pytest.approx(1)
    assert recall_capped(judged, 4).item() == pytest.approx(3 / 3)


def capped_loop(returned: list[int], truth: dict[int, float], k: int) -> float:
    return len(set(returned[:k]) & set(truth)) / min(k, len(truth)) if truth else 0.0


def test_capped_equals_a_loop(assert_equals_loop: Callable[..., None]) -> None:
    assert_equals_loop(recall_capped, capped_loop)
