"""Exact search equals sorting all products, whatever the blocks."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.profiler import profile

from rankfold.index.exact import PAIR_BYTES, Exact, Plan, _query_blocks, _row_length, make_plan
from rankfold.kernels.topk import LARGEST_BLOCK, bytes_per_row
from rankfold.types import Interactions

SMALL_BUDGETS = [1, 3000, 30_000, 100_000, 2**30]


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
    shape=st.tuples(st.integers(0, 7), st.integers(1, 500), st.integers(0, 4)),
    k=st.integers(0, 600),
    budget=st.sampled_from(SMALL_BUDGETS),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_equals_brute_force_for_every_budget(
    seed: int, shape: tuple[int, int, int], k: int, budget: int, share: float, dtype: torch.dtype
) -> None:
    b, n, d = shape
    vectors, candidates = whole_numbers(seed, b, d), whole_numbers(seed + 1, n, d)
    hidden = torch.rand(b, n, generator=torch.Generator().manual_seed(seed)) < share
    index = Exact(candidates.to(dtype), memory_budget=budget)
    result = index.search(vectors.to(dtype), k, as_interactions(hidden))
    assert result.ids.shape == result.scores.shape == (b, min(k, n))
    assert result.scores.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    lists = [[i for i in row if i >= 0] for row in result.ids.tolist()]
    assert lists == brute_force(vectors, candidates, k, hidden)
    padded = result.ids < 0
    assert torch.equal(padded, result.scores == -torch.inf)
    right = (vectors @ candidates.T).to(result.scores.dtype).gather(1, result.ids.clamp(min=0))
    assert torch.equal(result.scores[~padded], right[~padded])


@pytest.mark.parametrize("budget", [2**30, 2**20, 2**17])
def test_many_queries_and_candidates(budget: int) -> None:
    vectors, candidates = whole_numbers(1, 400, 5), whole_numbers(2, 5001, 5)
    hidden = torch.rand(400, 5001, generator=torch.Generator().manual_seed(3)) < 0.01
    scores = (vectors @ candidates.T).masked_fill(hidden, -torch.inf)
    right = scores.sort(dim=1, descending=True, stable=True)
    result = Exact(candidates, budget).search(vectors, 20, as_interactions(hidden))
    assert torch.equal(result.ids, right.indices[:, :20])
    assert torch.equal(result.scores, right.values[:, :20])


# ---------------------------------------------------------------------------------- memory


@given(
    shape=st.tuples(st.integers(1, 10**7), st.integers(1, 10**8)),
    k=st.integers(1, 1000),
    item=st.sampled_from([4, 8]),
    budget=st.integers(1, 2**36),
    width=st.sampled_from([0, 8, 1000]),
)
def test_plan_stays_within_the_budget(
    shape: tuple[int, int], k: int, item: int, budget: int, width: int
) -> None:
    k = min(k, shape[1])
    plan = make_plan(shape, k, item, budget, converted_width=width)
    assert 1 <= plan.queries <= shape[0]
    assert k <= plan.candidates <= shape[1]
    length = _row_length(plan.candidates, k)
    if plan.queries > 1 or plan.candidates > max(LARGEST_BLOCK, k):
        copies = (plan.queries + plan.candidates) * width
        assert (plan.queries * length + copies) * item <= budget / 2
    if plan.rows > 1:
        assert plan.rows * bytes_per_row(length, k) <= budget / 4
    if plan.pairs > 1:
        assert plan.pairs * PAIR_BYTES <= budget / 4


def test_the_default_budget_takes_large_blocks() -> None:
    plan = make_plan((29_858, 40_981), 20, 4, 2**30)
    assert plan.candidates == 40_981
    assert plan.queries >= 1000


def peak_bytes(work: Callable[[], object]) -> int:
    """The peak memory that ``work`` allocates in torch."""
    with profile(profile_memory=True) as seen:
        work()
    allocated = most = 0
    assert seen.profiler is not None
    for event in seen.profiler.kineto_results.events():
        if event.name() == "[memory]":
            allocated += event.nbytes()
            most = max(most, allocated)
    return most


@pytest.mark.parametrize("k", [3, 60])
@pytest.mark.parametrize("budget", [2**21, 2**23])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_search_allocates_no_more_than_its_budget(budget: int, k: int, dtype: torch.dtype) -> None:
    """Besides the results. All scores would take 36 or 72 MB, all excluded pairs over 1 MB."""
    vectors, candidates = whole_numbers(1, 300, 8).to(dtype), whole_numbers(2, 30_000, 8).to(dtype)
    hidden = torch.zeros(300, 30_000, dtype=torch.bool)
    hidden[:, ::100] = True
    exclude, index = as_interactions(hidden), Exact(candidates, budget)
    result = index.search(vectors, k, exclude)
    results = sum(t.numel() * t.element_size() for t in result)
    peak = peak_bytes(lambda: index.search(vectors, k, exclude))
    assert budget / 8 < peak <= budget + results


@given(
    counts=st.lists(st.integers(0, 9), min_size=1, max_size=40),
    queries=st.integers(1, 9),
    pairs=st.integers(1, 20),
)
def test_query_blocks_cover_all_queries_once(counts: list[int], queries: int, pairs: int) -> None:
    offsets = torch.tensor([0, *counts]).cumsum(0)
    exclude = Interactions(offsets, torch.zeros(int(offsets[-1])).int(), None, 9)
    blocks = list(_query_blocks(len(counts), exclude, Plan(queries, 1, 1, pairs)))
    assert [row for start, stop in blocks for row in range(start, stop)] == [*range(len(counts))]
    for start, stop in blocks:
        assert stop - start <= queries
        assert stop - start == 1 or sum(counts[start:stop]) <= pairs
    assert len(blocks) <= -(-len(counts) // queries) + 2 * sum(counts) // pairs + 1
