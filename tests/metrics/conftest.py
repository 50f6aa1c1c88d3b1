"""Random rankings with their truth, and the check that a metric equals a plain loop over them."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankfold.metrics import PerQuery
from rankfold.metrics.judged import Judged, judge
from rankfold.types import Interactions, from_pairs

Loop = Callable[[list[int], dict[int, float], int], float]
"""``(returned candidates, grade of each positive, k) -> value`` for one query."""


class Case(NamedTuple):
    returned: list[list[int]]  # per query, best first, without padding
    truth: list[dict[int, float]]  # per query, the grade of each positive
    n_candidates: int
    width: int  # K
    k: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Few queries and candidates: short lists, queries without a positive, k above and below N."""
    n = draw(st.integers(1, 9))
    k = draw(st.integers(1, 11))
    width = min(n, k + draw(st.integers(0, 2)))
    candidate = st.integers(0, n - 1)
    returned = st.lists(candidate, unique=True, max_size=width)
    positives = st.dictionaries(candidate, st.sampled_from([0.5, 1.0, 2.0, 3.0]))
    queries = draw(st.lists(st.tuples(returned, positives), max_size=4))
    return Case([ids for ids, _ in queries], [grades for _, grades in queries], n, width, k)


@pytest.fixture(scope="session")
def any_case() -> st.SearchStrategy[Case]:
    return cases()


@pytest.fixture(scope="session")
def judge_case() -> Callable[..., Judged]:
    return lambda case, **more: judge(padded(case), truth_of(case), **more)


@pytest.fixture(scope="session")
def assert_equals_loop() -> Callable[[PerQuery, Loop], None]:
    def assert_equals_loop(metric: PerQuery, loop: Loop) -> None:
        @settings(deadline=None)
        @given(cases())
        def check(case: Case) -> None:
            queries = zip(case.returned, case.truth, strict=True)
            expected = [loop(ids, grades, case.k) for ids, grades in queries]
            values = metric(judge(padded(case), truth_of(case)), case.k)
            torch.testing.assert_close(values, torch.tensor(expected, dtype=torch.float32))

        check()

    return assert_equals_loop


def padded(case: Case) -> Tensor:
    """The returned candidates as a tensor; [B, K]."""
    rows = [ids + [-1] * (case.width - len(ids)) for ids in case.returned]
    return torch.tensor(rows, dtype=torch.int64).reshape(-1, case.width)


def truth_of(case: Case) -> Interactions:
    pairs = [(b, y, row[y]) for b, row in enumerate(case.truth) for y in sorted(row)]
    table = torch.tensor(pairs, dtype=torch.float32).reshape(-1, 3)
    queries, candidates = table[:, 0].long(), table[:, 1].long()
    return from_pairs(queries, candidates, table[:, 2], (len(case.truth), case.n_candidates))
