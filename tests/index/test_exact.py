"""Search equals sorting all products, whatever the blocks."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rankfold.errors import UserError
from rankfold.index.exact import Exact, make_plan
from rankfold.types import Interactions


def whole_numbers(seed: int, *shape: int) -> Tensor:
    """Small whole numbers: their products are exact, and often equal."""
    rng = torch.Generator().manual_seed(seed)
    return torch.randint(-2, 3, shape, generator=rng).float()


def brute_force(vectors: Tensor, candidates: Tensor, k: int, hidden: Tensor) -> list[list[int]]:
    scores = (vectors @ candidates.T).tolist()
    lists = []
    for row, values in enumerate(scores):
        left = [c for c in range(len(candidates)) if not hidden[row, c]]
        lists.append(sorted(left, key=lambda c: (-values[c], c))[:k])
    return lists


def as_interactions(hidden: Tensor) -> Interactions:
    offsets = torch.cat([torch.zeros(1).long(), hidden.sum(dim=1).cumsum(0)])
    return Interactions(offsets, hidden.nonzero()[:, 1].int(), None, hidden.shape[1])


@given(
    seed=st.integers(0, 10**6),
    shape=st.tuples(st.integers(0, 7), st.integers(1, 40), st.integers(0, 4)),
    k=st.integers(1, 50),
    budget=st.sampled_from([1, 16, 200, 1000, 2**30]),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_equals_brute_force_for_every_budget(
    seed: int, shape: tuple[int, int, int], k: int, budget: int, share: float, dtype: torch.dtype
) -> None:
    b, n, d = shape
    vectors, candidates = whole_numbers(seed, b, d), whole_numbers(seed + 1, n, d)
    hidden = torch.rand(b, n, generator=torch.Generator().manual_seed(seed)) < share
    index = Exact(candidates.to(dtype), memory_budget=budget)
    found = index.search(vectors.to(dtype), k, as_interactions(hidden))
    assert found.ids.shape == found.scores.shape == (b, min(k, n))
    lists = [[i for i in row if i >= 0] for row in found.ids.tolist()]
    assert lists == brute_force(vectors, candidates, k, hidden)
    padded = found.ids < 0
    assert torch.equal(padded, found.scores == -torch.inf)
    scores = (vectors @ candidates.T).to(dtype)
    right = scores.gather(1, found.ids.clamp(min=0)) if n else scores
    assert torch.equal(found.scores[~padded], right[~padded])


def test_many_queries_and_candidates() -> None:
    vectors, candidates = whole_numbers(1, 700, 5), whole_numbers(2, 9000, 5)
    hidden = torch.rand(700, 9000) < 0.01
    expected = brute_force(vectors, candidates, 20, hidden)
    for budget in (2**30, 2**22, 2**18):
        found = Exact(candidates, budget).search(vectors, 20, as_interactions(hidden))
        assert found.ids.tolist() == expected


@given(n=st.integers(1, 10**8), item=st.sampled_from([2, 4, 8]), budget=st.integers(1, 2**36))
def test_plan_stays_within_the_budget(n: int, item: int, budget: int) -> None:
    plan = make_plan(n, item, budget)
    assert 1 <= plan.columns <= n
    assert plan.rows >= 1
    assert plan.rows * plan.columns * item * 4 <= max(budget, 4 * item)


def test_no_candidates_and_no_queries() -> None:
    assert Exact(torch.zeros(0, 3)).search(torch.zeros(2, 3), 5).ids.shape == (2, 0)
    assert Exact(torch.zeros(4, 3)).search(torch.zeros(0, 3), 5).ids.shape == (0, 4)


@pytest.mark.parametrize("where", ["query", "candidate"])
def test_nan_is_refused(where: str) -> None:
    good, bad = torch.zeros(2, 3), torch.tensor([[0.0, 0, 0], [0, torch.nan, 0]])
    with pytest.raises(UserError, match=f"the vector of {where} 1 holds NaN"):
        Exact(bad if where == "candidate" else good).search(bad, 1)
