"""The fast top-k equals a stable sort, including ties."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rankfold.kernels.topk import block_size, merge_top_k, top_k, top_k_reference
from rankfold.types import TopK

FLOATS = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def assert_same(one: TopK, other: TopK) -> None:
    assert one.ids.dtype == other.ids.dtype == torch.int64
    assert torch.equal(one.ids, other.ids)
    assert one.scores.dtype == other.scores.dtype
    assert torch.equal(one.scores, other.scores)


def scores_with_ties(seed: int, rows: int, n: int, levels: int, hidden: float) -> Tensor:
    """Few levels make many ties; some or all entries are -inf, zeros have both signs."""
    rng = torch.Generator().manual_seed(seed)
    scores = torch.randint(-levels, levels + 1, (rows, n), generator=rng) / 7
    signs = 1 - 2 * torch.randint(0, 2, (rows, n), generator=rng)
    scores = torch.where(scores == 0, torch.copysign(scores, signs), scores)
    return scores.masked_fill(torch.rand(rows, n, generator=rng) < hidden, -torch.inf)


@given(
    seed=st.integers(0, 10**6),
    shape=st.tuples(st.integers(0, 5), st.integers(0, 3000)),
    k=st.integers(0, 40),
    levels=st.sampled_from([0, 1, 5, 50, 10**6]),
    hidden=st.sampled_from([0.0, 0.3, 0.99, 1.0]),
    dtype=st.sampled_from(FLOATS),
)
def test_equals_the_reference(
    seed: int, shape: tuple[int, int], k: int, levels: int, hidden: float, dtype: torch.dtype
) -> None:
    scores = scores_with_ties(seed, *shape, levels, hidden).to(dtype)
    assert_same(top_k(scores, k), top_k_reference(scores, k))


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(200, 9000),
    k=st.integers(1, 3),
    skip=st.integers(0, 3),
)
def test_equals_the_reference_on_a_slice_of_columns(seed: int, n: int, k: int, skip: int) -> None:
    scores = scores_with_ties(seed, 3, n + skip, 3, 0.5)[:, skip:]
    assert_same(top_k(scores, k), top_k_reference(scores, k))


def test_the_reference_equals_a_loop() -> None:
    scores = scores_with_ties(0, 4, 30, 2, 0.5)
    result = top_k_reference(scores, 20)
    for row, values in enumerate(scores.tolist()):
        left = [c for c in range(30) if values[c] > -torch.inf]
        order = sorted(left, key=lambda c: (-values[c], c))[:20]
        assert result.ids[row].tolist() == order + [-1] * (20 - len(order))
        right = [values[c] for c in order] + [-torch.inf] * (20 - len(order))
        assert result.scores[row].tolist() == right


@pytest.mark.parametrize("n", [4096, 5000, 5003])
@pytest.mark.parametrize("k", [1, 3, 20])
def test_ties_go_to_the_first_columns(n: int, k: int) -> None:
    """Wherever blocks end."""
    assert block_size(n, k) > 0
    assert top_k(torch.ones(2, n), k).ids.tolist() == [list(range(k))] * 2


def test_a_tie_between_blocks_goes_to_the_left_one() -> None:
    scores = torch.zeros(1, 4096)
    scores[0, [4095, 70, 3000]] = 1.0
    assert top_k(scores, 2).ids.tolist() == [[70, 3000]]


@pytest.mark.parametrize("dtype", FLOATS)
def test_signed_zeros_are_equal(dtype: torch.dtype) -> None:
    scores = torch.tensor([[-1.0, -0.0, 0.0, -1.0, -0.0]], dtype=dtype)
    assert top_k(scores, 4).ids.tolist() == [[1, 2, 4, 0]]


def test_huge_tiny_and_infinite_scores_are_ordered() -> None:
    values = [3e38, 1.0, 1e-45, 0.0, -1e-45, -1.0, -3e38, torch.inf]
    assert top_k(torch.tensor([values]), 8).ids.tolist() == [[7, 0, 1, 2, 3, 4, 5, 6]]


def test_float64_is_not_rounded_before_it_is_ranked() -> None:
    scores = torch.ones(1, 4096, dtype=torch.float64)
    scores[0, 4000] += 1e-12
    result = top_k(scores, 2)
    assert result.ids.tolist() == [[4000, 0]]
    assert result.scores.tolist() == [[1 + 1e-12, 1.0]]


def test_minus_infinity_is_never_returned() -> None:
    scores = torch.full((1, 2000), -torch.inf)
    scores[0, [1999, 17]] = torch.tensor([1.0, 2.0])
    result = top_k(scores, 4)
    assert result.ids.tolist() == [[17, 1999, -1, -1]]
    assert result.scores.tolist() == [[2.0, 1.0, -torch.inf, -torch.inf]]


@pytest.mark.parametrize(("n", "k", "width"), [(1, 3, 1), (5, 9, 5), (5, 0, 0), (0, 4, 0)])
def test_no_more_results_than_columns(n: int, k: int, width: int) -> None:
    result = top_k(torch.zeros(2, n), k)
    assert result.ids.tolist() == [list(range(width))] * 2
    assert result.scores.shape == (2, width)


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 60),
    cut=st.integers(0, 60),
    k=st.integers(1, 70),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_the_best_of_two_parts_are_the_best_of_all(
    seed: int, n: int, cut: int, k: int, dtype: torch.dtype
) -> None:
    scores = scores_with_ties(seed, 3, n, 2, 0.3).to(dtype)
    left, right = top_k(scores[:, :cut], k), top_k(scores[:, cut:], k)
    right = TopK(torch.where(right.ids < 0, -1, right.ids + min(cut, n)), right.scores)
    assert_same(merge_top_k(left, right, k), top_k(scores, k))


def test_blocks_rank_far_fewer_columns_than_there_are() -> None:
    """With blocks, fewer than 3 thousand of 41 thousand columns are ranked."""
    size = block_size(40_981, 20)
    assert 40_981 // size + 20 * size < 3000
