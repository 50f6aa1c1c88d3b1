"""Frequency groups equal their formula and a loop; the truth of one group."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankfold.metrics.strata import frequency_groups, within
from rankfold.types import Interactions

COUNTS = st.lists(st.integers(0, 9), max_size=30)


@pytest.mark.parametrize(
    ("counts", "groups"),
    [
        ([6, 3, 3, 2, 2, 1, 1], [0, 1, 1, 2, 2, 2, 2]),
        ([1, 6, 0, 3, 2, 0, 3, 1, 2], [2, 0, 3, 1, 2, 3, 1, 2, 2]),  # in any order
        ([5, 5, 5, 5], [1, 1, 1, 1]),  # neither frequent nor rare
        ([10, 1], [1, 2]),  # the middle of the first candidate's pairs is in the second third
        ([4, 1, 1, 1, 1, 1, 1], [0, 2, 2, 2, 2, 2, 2]),
        ([0, 0], [3, 3]),
        ([], []),
    ],
)
def test_groups_by_hand(counts: list[int], groups: list[int]) -> None:
    assert frequency_groups(torch.tensor(counts, dtype=torch.int64)).tolist() == groups


@settings(deadline=None)
@given(COUNTS)
def test_groups_equal_a_loop(counts: list[int]) -> None:
    expected = []
    for own in counts:
        before = sum(count for count in counts if count > own)
        equal = sum(count for count in counts if count == own)
        expected.append(int(3 * (before + Fraction(equal, 2)) / sum(counts)) if own else 3)
    assert frequency_groups(torch.tensor(counts, dtype=torch.int64)).tolist() == expected


@settings(deadline=None)
@given(COUNTS)
def test_more_frequent_candidates_are_never_in_a_later_group(counts: list[int]) -> None:
    groups = frequency_groups(torch.tensor(sorted(counts, reverse=True), dtype=torch.int64))
    assert (groups.diff() >= 0).all()


@settings(deadline=None)
@given(st.integers(2, 300))
def test_without_ties_groups_hold_a_third_up_to_one_candidate(n: int) -> None:
    counts = torch.arange(1, n + 1)
    groups = frequency_groups(counts)
    for group in range(3):
        pairs = int(counts[groups == group].sum())
        assert abs(pairs - int(counts.sum()) / 3) <= n


def test_within_keeps_rows_and_grades() -> None:
    truth = Interactions(
        torch.tensor([0, 2, 2, 5]),
        torch.tensor([1, 4, 0, 1, 3], dtype=torch.int32),
        torch.tensor([1.0, 3.0, 2.0, 0.5, 4.0]),
        5,
    )
    result = within(truth, torch.tensor([True, False, False, True, True]))
    assert result.offsets.tolist() == [0, 1, 1, 3]
    assert result.candidates.tolist() == [4, 0, 3]
    assert result.grades is not None
    assert result.grades.tolist() == [3.0, 2.0, 4.0]
    assert result.n_candidates == 5
    plain = Interactions(truth.offsets, truth.candidates, None, 5)
    assert within(plain, torch.ones(5, dtype=torch.bool)).grades is None
