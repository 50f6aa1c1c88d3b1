"""The comparison of rankings accepts rounding differences and nothing else."""

import pytest
import torch
from rankings import assert_same_keys, assert_same_ranking, ranking_of, sorted_by

from rankfold.types import TopK

IDS = [7, 3, 5, 1]
SCORES = [9.0, 4.00001, 4.0, 1.0]  # 3 and 5 are tied within 1e-5 of 9


def top(ids: list[int], scores: list[float] = SCORES) -> TopK:
    """One good row, and the given one."""
    return TopK(torch.tensor([IDS, ids]), torch.tensor([SCORES, scores]))


@pytest.mark.parametrize("ids", [IDS, [7, 5, 3, 1]])
def test_ties_may_be_in_any_order(ids: list[int]) -> None:
    assert_same_ranking(top(ids), top(IDS))
    assert_same_ranking(top(ids, [9.00005, 4.0, 4.00001, 1.00005]), top(IDS))


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([3, 7, 5, 1], "id 3 at place 0 of row 1"),  # swapped, with a clear gap
        ([7, 3, 1, 5], "id 1 at place 2 of row 1"),
        ([7, 3, 8, 1], "id 8 at place 2 of row 1"),  # 5 is missing
        ([8, 3, 5, 1], "id 8 at place 0 of row 1"),
        ([7, 3, 3, 1], "repeated ids"),
        ([7, 3, 5, -1], "padding of row 1"),
    ],
)
def test_other_ids_are_refused(ids: list[int], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        assert_same_ranking(top(ids), top(IDS))


@pytest.mark.parametrize("place", range(4))
def test_other_scores_are_refused(place: int) -> None:
    scores = list(SCORES)
    scores[place] += 2e-4
    with pytest.raises(AssertionError, match="scores of row 1"):
        assert_same_ranking(top(IDS, scores), top(IDS))
    assert_same_ranking(top(IDS, scores), top(IDS), rtol=1e-4)


def test_the_tie_of_the_last_place_is_known_from_further_columns() -> None:
    def first(n: int, ids: list[int]) -> TopK:
        return TopK(*(t[:, :n] for t in top(ids)))

    swapped, other = [7, 5, 3, 1], [7, 8, 5, 1]
    assert_same_ranking(first(2, swapped), first(2, IDS))
    assert_same_ranking(first(2, swapped), top(IDS))
    assert_same_ranking(first(2, other), first(2, IDS))
    with pytest.raises(AssertionError, match="id 8 at place 1"):
        assert_same_ranking(first(2, other), top(IDS))
    with pytest.raises(AssertionError, match="4 places, expected 2"):
        assert_same_ranking(top(IDS), first(2, IDS))


def test_padding_ends_the_last_tie() -> None:
    padded = [9.0, 4.0, 1.0, -torch.inf]
    expected = top([7, 5, 1, -1], padded)
    assert_same_ranking(expected, expected)
    with pytest.raises(AssertionError, match="id 2 at place 2"):
        assert_same_ranking(top([7, 5, 2, -1], padded), expected)
    with pytest.raises(AssertionError, match="scores of padding"):
        assert_same_ranking(top([7, 5, 1, -1], [9.0, 4.0, 1.0, 0.0]), expected)
    nothing = TopK(torch.full((1, 2), -1), torch.full((1, 2), -torch.inf))
    assert_same_ranking(nothing, nothing)


def test_keys_are_compared_as_ids_are() -> None:
    expected = ranking_of([[("a", 2.0), ("b", 1.0), ("c", 1.0)], [("d", 3.0)]])
    assert_same_keys(ranking_of([[("a", 2.0), ("c", 1.0), ("b", 1.0)], [("d", 3.0)]]), expected)
    for first in ("b", "x"):
        actual = ranking_of([[(first, 2.0), ("a", 1.0), ("c", 1.0)], [("d", 3.0)]])
        with pytest.raises(AssertionError, match="at place 0 of row 0"):
            assert_same_keys(actual, expected)


def test_columns_are_sorted_and_minus_infinity_is_padding() -> None:
    scores = torch.tensor([[1.0, -torch.inf, 3.0]])
    result = sorted_by(scores)
    assert result.ids.tolist() == [[2, 0, -1]]
    assert result.scores.tolist() == [[3.0, 1.0, -torch.inf]]
    assert sorted_by(scores, torch.tensor([[4, 5, 6]])).ids.tolist() == [[6, 4, -1]]
