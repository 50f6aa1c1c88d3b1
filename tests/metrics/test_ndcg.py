"""nDCG equals its formula and a loop; a k beyond the ideal is refused."""

from collections.abc import Callable
from math import log2

import pytest
import torch

from rankfold.metrics import PerQuery
from rankfold.metrics.judged import judge
from rankfold.metrics.ndcg import ndcg, ndcg_graded
from rankfold.types import Interactions

TRUTH = Interactions(
    offsets=torch.tensor([0, 3]),
    candidates=torch.tensor([0, 1, 2]),
    grades=torch.tensor([1.0, 3.0, 2.0]),
    n_candidates=6,
)


def test_binary_value_matches_the_formula() -> None:
    judged = judge(torch.tensor([[5, 2, 4, 0]]), TRUTH)
    expected = (1 / log2(3) + 1 / log2(5)) / (1 / log2(2) + 1 / log2(3) + 1 / log2(4))
    assert ndcg(judged, 4).item() == pytest.approx(expected)


def test_graded_value_matches_the_formula() -> None:
    judged = judge(torch.tensor([[5, 2, 4, 0]]), TRUTH)
    expected = (2 / log2(3) + 1 / log2(5)) / (3 / log2(2) + 2 / log2(3) + 1 / log2(4))
    assert ndcg_graded(judged, 4).item() == pytest.approx(expected)


def test_the_ideal_is_cut_at_k() -> None:
    judged = judge(torch.tensor([[2, 5, 4, 0]]), TRUTH)
    assert ndcg(judged, 1).item() == 1.0
    assert ndcg_graded(judged, 1).item() == pytest.approx(2 / 3)


def binary_loop(returned: list[int], truth: dict[int, float], k: int) -> float:
    return graded_loop(returned, dict.fromkeys(truth, 1.0), k)


def graded_loop(returned: list[int], truth: dict[int, float], k: int) -> float:
    gained = best = 0.0
    for place, candidate in enumerate(returned[:k]):
        gained += truth.get(candidate, 0.0) / log2(place + 2)
    for place, grade in enumerate(sorted(truth.values(), reverse=True)[:k]):
        best += grade / log2(place + 2)
    return gained / best if truth else 0.0


def test_equal_loops(assert_equals_loop: Callable[..., None]) -> None:
    assert_equals_loop(ndcg, binary_loop)
    assert_equals_loop(ndcg_graded, graded_loop)


@pytest.mark.parametrize("metric", [ndcg, ndcg_graded])
def test_a_k_beyond_the_ideal_is_refused(metric: PerQuery) -> None:
    judged = judge(torch.tensor([[1, 2]]), TRUTH)  # three positives, room for two
    with pytest.raises(ValueError, match=r"k must be at most 2.*got 3"):
        metric(judged, 3)
