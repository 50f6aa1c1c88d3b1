"""The best candidates by blocks are the best of all scores, ties and hidden pairs included."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rankings import assert_same_ranking
from torch import Tensor

from rankfold.index.exact import PAIR_BYTES, Exact
from rankfold.kernels import nearest as kernels
from rankfold.kernels import nearest_triton
from rankfold.kernels.nearest import best_inside, nearest, nearest_plain, takes
from rankfold.kernels.nearest_triton import block_maxima_plain, scores_inside_plain
from rankfold.kernels.topk import top_k
from rankfold.types import Interactions, TopK, from_pairs

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.fixture
def fused_at_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fused kernels are used for any number of scores."""
    monkeypatch.setattr(kernels, "MIN_SCORES", 1)


def whole(seed: int, b: int, n: int, d: int = 3) -> list[Tensor]:
    """Vectors of small whole numbers: products are exact, and many are equal."""
    rng = torch.Generator().manual_seed(seed)
    return [torch.randint(-2, 3, (m, d), generator=rng).float() for m in (b, n)]


def some_hidden(seed: int, b: int, n: int, most: int) -> tuple[Tensor, Tensor]:
    """Up to ``most`` candidates of each row, by ascending rows."""
    rng = torch.Generator().manual_seed(seed)
    chosen = torch.rand(b, n, generator=rng).argsort(dim=1)[:, :most]
    rows = torch.arange(b)[:, None].expand_as(chosen)
    kept = torch.rand(chosen.shape, generator=rng) < 0.7
    return rows[kept], chosen[kept]


@given(
    seed=st.integers(0, 10**6),
    b=st.integers(1, 5),
    n=st.integers(12, 60),
    size=st.sampled_from([1, 2, 4]),
    k=st.integers(1, 4),
    most=st.integers(0, 3),
)
def test_blocks_with_the_largest_maxima_hold_the_best(
    seed: int, b: int, n: int, size: int, k: int, most: int
) -> None:
    queries, candidates = whole(seed, b, n)
    hidden = some_hidden(seed, b, n, most)
    taken = min(k + most, -(-n // size))
    maxima = block_maxima_plain(queries, candidates, size)
    blocks = top_k(maxima, taken).ids.sort(dim=1).values
    inside = scores_inside_plain(queries, candidates, blocks, size)
    result = best_inside(inside, blocks, size, k, hidden)
    expected = nearest_plain(queries, candidates, k, hidden)
    torch.testing.assert_close(result.scores, expected.scores, rtol=0, atol=0)
    assert torch.equal(result.ids, expected.ids)


def test_plain_forms_by_hand() -> None:
    queries, candidates = torch.tensor([[1.0], [-2.0]]), torch.tensor([[3.0], [1.0], [2.0]])
    assert block_maxima_plain(queries, candidates, 2).tolist() == [[3, 2], [-2, -4]]
    inside = scores_inside_plain(queries, candidates, torch.tensor([[1], [0]]), 2)
    assert inside.tolist() == [[2, -torch.inf], [-6, -2]]


@pytest.mark.usefixtures("fused_at_any_size")
def test_without_a_gpu_nothing_is_fused() -> None:
    queries, candidates = whole(0, 2, 5000)
    assert not takes(queries, candidates, 1, 0)


@cuda
@pytest.mark.usefixtures("fused_at_any_size")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("b", "n", "d", "k"), [(1, 5000, 16, 3), (300, 9001, 64, 10), (129, 6000, 100, 5)]
)
def test_fused_kernels_find_the_best(dtype: torch.dtype, b: int, n: int, d: int, k: int) -> None:
    pytest.importorskip("triton")
    queries, candidates = (torch.randn(m, d, device="cuda").to(dtype) for m in (b, n))
    hidden = tuple(t.cuda() for t in some_hidden(0, b, n, 4))
    assert takes(queries, candidates, k, 4)
    result = nearest(queries, candidates, k, hidden, 4)
    exact = nearest_plain(queries.double().float(), candidates.double().float(), 2 * k, hidden)
    assert_same_ranking(result, exact, rtol=1e-4)


@cuda
@pytest.mark.usefixtures("fused_at_any_size")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("width", [1, 20, 128, 256])
def test_fused_kernels_keep_the_order_of_ties(dtype: torch.dtype, width: int) -> None:
    pytest.importorskip("triton")
    queries, candidates = (t.to("cuda", dtype) for t in whole(1, 40, 20_000, width))
    if not takes(queries, candidates, 20, 7):
        assert (dtype, width) == (torch.float32, 256)
        return
    hidden = tuple(t.cuda() for t in some_hidden(2, 40, 20_000, 7))
    result = nearest(queries, candidates, 20, hidden, 7)
    expected = nearest_plain(queries, candidates, 20, hidden)
    assert torch.equal(result.ids, expected.ids)
    assert torch.equal(result.scores, expected.scores)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many queries each call of ``nearest`` had."""
    calls: list[int] = []

    def count(queries: Tensor, *others: Any) -> TopK:
        calls.append(len(queries))
        return nearest(queries, *others)

    monkeypatch.setattr(kernels, "nearest", count)
    return calls


def check_calls(calls: list[int], at_once: int) -> None:
    """Few queries do not use the kernel; others use blocks of this many."""
    assert calls == {1: [], 130: [130, 130, 40], 1000: [300]}[at_once]


@cuda
@pytest.mark.usefixtures("fused_at_any_size")
@pytest.mark.parametrize("at_once", [1, 130, 1000])  # queries that fit into memory
def test_search_on_a_gpu_equals_the_cpu(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    queries, candidates, hidden, budget = search_case(at_once)
    calls, there = counted(monkeypatch), Exact(candidates.cuda(), budget)
    result = there.search(queries.cuda(), 15, hidden.to(torch.device("cuda")))
    check_calls(calls, at_once)
    expected = Exact(candidates).search(queries, 15, hidden)
    assert torch.equal(result.ids.cpu(), expected.ids)
    assert torch.equal(result.scores.cpu(), expected.scores)


def search_case(at_once: int) -> tuple[Tensor, Tensor, Interactions, int]:
    """Queries, candidates, excluded pairs, and memory for ``at_once`` queries."""
    queries, candidates = whole(3, 300, 30_000, 24)
    rows, columns = some_hidden(4, 300, 30_000, 9)
    order = (rows * 30_000 + columns).argsort()
    hidden = from_pairs(rows[order], columns[order], None, (300, 30_000))
    most = int(hidden.counts().max())
    each = kernels.bytes_per_query(queries, 30_000, 15, most) + PAIR_BYTES * most
    return queries, candidates, hidden, each * at_once


@pytest.mark.parametrize("at_once", [1, 130, 1000])
def test_search_by_blocks_equals_all_scores(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code path of a GPU, with the plain forms in place of its kernels."""
    queries, candidates, hidden, budget = search_case(at_once)
    expected = Exact(candidates).search(queries, 15, hidden)
    use_plain_forms(monkeypatch)
    monkeypatch.setattr(kernels, "takes", lambda *_: True)
    calls, result = counted(monkeypatch), TopK(*map(torch.empty_like, expected))
    done = Exact(candidates, budget)._search_fused(queries, hidden, result)
    check_calls(calls, at_once)
    assert done == (at_once > 1)
    if done:
        assert torch.equal(result.ids, expected.ids)
        assert torch.equal(result.scores, expected.scores)


def use_plain_forms(monkeypatch: pytest.MonkeyPatch, wrong: str = "") -> None:
    """Use the plain forms in place of the kernels; ``wrong`` names one that is spoilt."""

    def maxima(queries: Tensor, candidates: Tensor) -> Tensor:
        if wrong == "does not compile":
            raise RuntimeError("no such instruction")
        result = block_maxima_plain(queries, candidates, nearest_triton.block_size(queries))
        return result * {"maxima": 1.1, "maxima are NaN": torch.nan}.get(wrong, 1.0)

    def inside(queries: Tensor, candidates: Tensor, blocks: Tensor) -> Tensor:
        size = nearest_triton.block_size(queries)
        result = scores_inside_plain(queries, candidates, blocks, size)
        if wrong == "the end":
            result = result.clamp(min=-9)
        return result * {"inside": 1.1, "inside is NaN": torch.nan}.get(wrong, 1.0)

    monkeypatch.setattr(nearest_triton, "block_maxima", maxima)
    monkeypatch.setattr(nearest_triton, "scores_inside", inside)


@pytest.mark.parametrize(
    "wrong",
    ["", "does not compile", "maxima", "maxima are NaN", "inside", "inside is NaN", "the end"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_kernels_that_fail_their_trial_are_not_used(
    wrong: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_plain_forms(monkeypatch, wrong)
    trial = nearest_triton._passes_trial_on.__wrapped__  # without its cache
    if not wrong:
        assert trial(torch.device("cpu"), dtype, 64)
        return
    with pytest.warns(UserWarning, match="search uses blocks of scores"):
        assert not trial(torch.device("cpu"), dtype, 64)
