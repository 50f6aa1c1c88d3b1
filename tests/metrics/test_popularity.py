"""Popularity ranks and their mean equal their formulas and a loop."""

from collections.abc import Callable
from statistics import mean
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankfold.metrics.judged import Judged, judge
from rankfold.metrics.popularity import popularity, popularity_rank
from rankfold.types import Interactions

NOTHING = Interactions(torch.tensor([0, 0]), torch.tensor([], dtype=torch.int64), None, 4)
RANK = torch.tensor([4.0, 1.0, 3.0, 2.0])


def test_value_matches_the_formula() -> None:
    judged = judge(torch.tensor([[0, 3, 1]]), NOTHING, RANK)
    assert popularity(judged, 2).item() == (4 + 2) / 2
    assert popularity(judged, 3).item() == pytest.approx((4 + 2 + 1) / 3)


def test_padding_is_not_counted() -> None:
    judged = judge(torch.tensor([[0, -1, -1]]), NOTHING, RANK)
    assert popularity(judged, 3).item() == 4.0


def test_a_query_without_results_is_zero() -> None:
    judged = judge(torch.tensor([[-1, -1]]), NOTHING, RANK)
    assert popularity(judged, 2).item() == 0.0


def test_missing_ranks_are_reported() -> None:
    with pytest.raises(ValueError, match="popularity_rank="):
        popularity(judge(torch.tensor([[0]]), NOTHING), 1)


def test_equals_a_loop(
    any_case: st.SearchStrategy[Any], judge_case: Callable[[Any], Judged]
) -> None:
    @settings(deadline=None)
    @given(any_case, st.randoms(use_true_random=False))
    def check(case: Any, random: Any) -> None:
        ranks = random.sample(range(1, case.n_candidates + 1), case.n_candidates)
        expected = [
            mean(ranks[y] for y in returned[: case.k]) if returned else 0.0
            for returned in case.returned
        ]
        judged = judge_case(case)._replace(popularity_rank=torch.tensor(ranks).float())
        torch.testing.assert_close(popularity(judged, case.k), torch.tensor(expected).float())

    check()


def test_equally_popular_candidates_share_the_mean_of_their_ranks() -> None:
    ranks = popularity_rank(torch.tensor([5, 9, 5, 0, 5]))
    assert ranks.tolist() == [3.0, 1.0, 3.0, 5.0, 3.0]
    assert ranks.dtype == torch.float32


@settings(deadline=None)
@given(st.lists(st.integers(0, 4)))
def test_rank_equals_a_loop(counts: list[int]) -> None:
    places: dict[int, list[int]] = {}
    for place, count in enumerate(sorted(counts, reverse=True), start=1):
        places.setdefault(count, []).append(place)
    expected = [mean(places[count]) for count in counts]
    assert popularity_rank(torch.tensor(counts, dtype=torch.int64)).tolist() == expected
