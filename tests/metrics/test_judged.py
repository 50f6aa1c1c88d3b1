"""Results are compared with the truth of their own query."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankfold.metrics.judged import Judged, judge
from rankfold.types import Interactions

TRUTH = Interactions(
    offsets=torch.tensor([0, 2, 2, 5]),
    candidates=torch.tensor([1, 4, 0, 1, 3], dtype=torch.int32),
    grades=torch.tensor([1.0, 3.0, 2.0, 0.5, 4.0]),
    n_candidates=5,
)


def test_grades_come_from_the_row_of_the_query() -> None:
    ids = torch.tensor([[4, 0, 1], [1, 4, 0], [3, 4, 0]])
    judged = judge(ids, TRUTH)
    assert torch.equal(judged.ids, ids)
    assert judged.grades.tolist() == [[3.0, 0.0, 1.0], [0.0, 0.0, 0.0], [4.0, 0.0, 2.0]]
    assert judged.ideal.tolist() == [[3.0, 1.0, 0.0], [0.0, 0.0, 0.0], [4.0, 2.0, 0.5]]
    assert judged.positives.tolist() == [2, 0, 3]
    assert judged.popularity_rank is None
    assert judged.weights is judged.ideal_weights is None


def test_only_positives_have_weights() -> None:
    ids = torch.tensor([[4, 0, -1], [1, 4, 0], [3, 4, 0]])
    judged = judge(ids, TRUTH, inverse_propensity=torch.tensor([2.0, 5.0, 9.0, 3.0, 4.0]))
    assert judged.weights is not None
    assert judged.weights.tolist() == [[4.0, 0.0, 0.0], [0.0, 0.0, 0.0], [3.0, 0.0, 2.0]]
    assert judged.ideal_weights is not None
    assert judged.ideal_weights.tolist() == [[5.0, 4.0, 0.0], [0.0, 0.0, 0.0], [5.0, 3.0, 2.0]]


def test_padding_does_not_match_the_last_candidate_of_the_previous_row() -> None:
    judged = judge(torch.tensor([[4, -1], [-1, -1], [0, -1]]), TRUTH)
    assert judged.grades.tolist() == [[3.0, 0.0], [0.0, 0.0], [2.0, 0.0]]


def test_truth_without_grades_is_all_ones() -> None:
    ids = torch.tensor([[4, 0], [1, 4], [3, 1]])
    judged = judge(ids, Interactions(TRUTH.offsets, TRUTH.candidates, None, 5))
    assert judged.grades.tolist() == [[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]
    assert judged.ideal.tolist() == [[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]


def test_equals_a_loop(
    any_case: st.SearchStrategy[Any], judge_case: Callable[[Any], Judged]
) -> None:
    @settings(deadline=None)
    @given(any_case)
    def check(case: Any) -> None:
        judged = judge_case(case)
        for b, (returned, truth) in enumerate(zip(case.returned, case.truth, strict=True)):
            missing = [0.0] * (case.width - len(returned))
            assert judged.grades[b].tolist() == [truth.get(y, 0.0) for y in returned] + missing
            best = sorted(truth.values(), reverse=True) + [0.0] * case.width
            assert judged.ideal[b].tolist() == best[: case.width]
            assert judged.positives[b] == len(truth)

    check()


def test_memory_does_not_grow_with_the_number_of_candidates() -> None:
    n = 2**40  # one bit for each of these would not fit
    last = torch.tensor([0, n - 1])
    truth = Interactions(torch.tensor([0, 2, 4]), torch.cat([last, last]), None, n)
    judged = judge(torch.tensor([[n - 1, 1], [2, 0]]), truth)
    assert judged.grades.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_transposed_ids_work() -> None:
    ids = torch.tensor([[4, 0, 1], [1, 4, 0], [3, 4, 0]])
    turned = ids.T.contiguous().T
    assert torch.equal(judge(turned, TRUTH).grades, judge(ids, TRUTH).grades)


def test_rows_must_match() -> None:
    with pytest.raises(ValueError, match="different row counts: 2 of ids, 3 of truth"):
        judge(torch.zeros(2, 4, dtype=torch.int64), TRUTH)


def test_an_id_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="ids must be below N = 5, got 5"):
        judge(torch.tensor([[0], [5], [0]]), TRUTH)
