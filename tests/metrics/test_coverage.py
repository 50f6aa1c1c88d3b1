"""Coverage equals its formula, and its counts equal a loop."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankfold.metrics.coverage import count_returned, coverage
from rankfold.metrics.judged import Judged


def test_value_matches_the_formula() -> None:
    assert coverage(torch.tensor([0, 3, 1, 0, 0])).item() == torch.tensor(2 / 5).item()


def test_all_candidates_none_and_no_queries() -> None:
    assert coverage(torch.tensor([1, 7])).item() == 1.0
    assert coverage(torch.tensor([0, 0])).item() == 0.0
    assert coverage(torch.tensor([], dtype=torch.int64)).item() == 0.0


def test_counts_equal_a_loop(
    any_case: st.SearchStrategy[Any], judge_case: Callable[[Any], Judged]
) -> None:
    @settings(deadline=None)
    @given(any_case)
    def check(case: Any) -> None:
        expected = Counter(y for returned in case.returned for y in returned[: case.k])
        shown = count_returned(judge_case(case).ids, case.k, case.n_candidates)
        assert shown.tolist() == [expected[y] for y in range(case.n_candidates)]

    check()


def test_counts_of_batches_add_up() -> None:
    ids = torch.tensor([[0, 1], [1, -1], [3, 1]])
    parts = count_returned(ids[:1], 2, 5) + count_returned(ids[1:], 2, 5)
    assert parts.tolist() == count_returned(ids, 2, 5).tolist() == [1, 3, 0, 1, 0]
