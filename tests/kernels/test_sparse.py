"""Sparse products equal the dense ones; blocks cover all rows in order, within their limits."""

from itertools import pairwise

import pytest
import torch
from dense import random_rows
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rankfold.kernels import sparse
from rankfold.kernels.sparse import PAIR_BYTES, Blocks, blocks, pair_products, row_sums
from rankfold.types import Interactions

DTYPES = [torch.float32, torch.float64]
INDICES = [torch.int32, torch.int64]


def rows_of(
    dense: Tensor, index: torch.dtype = torch.int32, *, graded: bool = True
) -> Interactions:
    offsets = torch.cat([torch.zeros(1).long(), (dense > 0).sum(dim=1).cumsum(0)])
    grades = dense[dense > 0].float() if graded else None
    return Interactions(offsets, dense.nonzero()[:, 1].to(index), grades, dense.shape[1])


def dense_of(rows: Interactions) -> Tensor:
    dense = torch.zeros(rows.n_queries, rows.n_candidates)
    values = torch.ones(rows.n_pairs) if rows.grades is None else rows.grades
    dense[rows.query_of_pair().long(), rows.candidates.long()] = values
    return dense


@st.composite
def matrices(draw: st.DrawFn) -> Tensor:
    """Grades 1 to 4 at random places, [0-8, 1-6]; from none of them to all."""
    m, n = draw(st.integers(0, 8)), draw(st.integers(1, 6))
    share, seed = draw(st.sampled_from([0.0, 0.3, 0.7, 1.0])), draw(st.integers(0, 999))
    rng = torch.Generator().manual_seed(seed)
    chosen = torch.rand(m, n, generator=rng) < share
    return chosen * torch.randint(1, 5, (m, n), generator=rng).float()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index", INDICES)
@given(dense=matrices())
def test_row_sums_are_the_dense_product(
    dense: Tensor, dtype: torch.dtype, index: torch.dtype
) -> None:
    rows = rows_of(dense, index)
    vectors = torch.arange(3 * dense.shape[1], dtype=dtype).view(-1, 3) - 4
    assert rows.grades is not None
    weighted = row_sums(rows, vectors, rows.grades.to(dtype))
    plain = row_sums(rows, vectors)
    assert plain.dtype == weighted.dtype == dtype
    torch.testing.assert_close(weighted, dense.to(dtype) @ vectors)
    torch.testing.assert_close(plain, (dense > 0).to(dtype) @ vectors)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index", INDICES)
@given(dense=matrices())
def test_pair_products_are_the_scores_of_the_pairs_in_order(
    dense: Tensor, dtype: torch.dtype, index: torch.dtype
) -> None:
    rng = torch.Generator().manual_seed(1)
    left = torch.randn(len(dense), 3, generator=rng, dtype=dtype)
    right = torch.randn(dense.shape[1], 3, generator=rng, dtype=dtype)
    result = pair_products(rows_of(dense, index), left, right)
    torch.testing.assert_close(result, (left @ right.T)[dense > 0])


@given(dense=matrices(), most_rows=st.integers(1, 9), most_pairs=st.integers(1, 30))
def test_blocks_are_the_longest_runs_within_the_limits(
    dense: Tensor, most_rows: int, most_pairs: int
) -> None:
    rows = rows_of(dense)
    result = list(blocks(rows, most_rows, most_pairs))
    assert [0, *(stop for _, stop in result)] == [*(start for start, _ in result), len(dense)]
    for start, stop in result:
        pairs, longer = (int((dense[start:end] > 0).sum()) for end in (stop, stop + 1))
        alone = stop == start + 1
        assert start < stop <= start + most_rows
        assert pairs <= most_pairs or alone
        assert stop == len(dense) or stop == start + most_rows or longer > most_pairs


def test_a_huge_row_is_a_separate_block() -> None:
    rows = rows_of(torch.tensor([[1, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 0], [0, 0, 1, 0]]))
    assert list(blocks(rows, 10, 2)) == [(0, 1), (1, 2), (2, 4)]


def test_rows_without_pairs_fill_blocks_up_to_the_limit_of_rows() -> None:
    rows = rows_of(torch.zeros(5, 3))
    assert list(blocks(rows, 2, 1)) == [(0, 2), (2, 4), (4, 5)]
    assert list(blocks(rows_of(torch.zeros(0, 3)), 2, 1)) == []


@given(dense=matrices(), data=st.data())
def test_part_is_some_rows_of_the_same_memory(dense: Tensor, data: st.DataObject) -> None:
    rows = rows_of(dense)
    start = data.draw(st.integers(0, len(dense)))
    stop = data.draw(st.integers(start, len(dense)))
    part = rows.part(start, stop)
    assert torch.equal(dense_of(part), dense[start:stop])
    assert int(part.offsets[0]) == 0
    if part.n_pairs:
        pairs_before = int(rows.offsets[start])
        assert part.candidates.data_ptr() == rows.candidates[pairs_before:].data_ptr()


@pytest.mark.parametrize("graded", [False, True])
@given(dense=matrices(), pairs=st.sampled_from([1, 5, 10**6]))
def test_every_budget_gives_the_same_rows_and_columns(
    dense: Tensor, pairs: int, *, graded: bool
) -> None:
    dense = dense if graded else (dense > 0).float()
    result = list(Blocks(rows_of(dense, graded=graded), pairs * 4 * PAIR_BYTES))
    ends = [block.queries.stop for block in result]
    assert [block.queries.start for block in result] == [0, *ends][: len(result)]
    assert sum(len(block.rows.offsets) - 1 for block in result) == len(dense)
    for block in result:
        assert block.rows.n_pairs <= pairs or block.rows.n_queries == 1
        assert (block.rows.grades is None) is (block.columns.grades is None) is not graded
        assert torch.equal(dense_of(block.rows), dense[block.queries])
        assert torch.equal(dense_of(block.columns), dense[block.queries].T)


def test_blocks_are_cached_if_they_fit_into_half_of_the_budget() -> None:
    dense = (torch.rand(40, 4, generator=torch.Generator().manual_seed(0)) < 0.5).float()
    small, large = (Blocks(rows_of(dense), budget) for budget in (4 * PAIR_BYTES * 9, 2**20))
    assert len(list(small)) > 5
    assert len(list(large)) == 1
    assert all(first is again for first, again in zip(large, large, strict=True))
    assert all(first is not again for first, again in zip(small, small, strict=True))
    for first, again in zip(small, small, strict=True):
        assert torch.equal(first.columns.candidates, again.columns.candidates)


def test_offsets_count_towards_the_budget() -> None:
    """N offsets for each block count too: many candidates are not kept in a small budget."""
    dense = torch.eye(64)
    budget = 4 * PAIR_BYTES * 4  # 16 blocks of 4 pairs: 256 bytes of pairs, 8 KiB of offsets
    result = Blocks(rows_of(dense, graded=False), budget)
    assert len(list(result)) == 16
    assert all(first is not again for first, again in zip(result, result, strict=True))


def test_columns_within_a_block_ascend() -> None:
    """So that their products run through memory in order."""
    dense = torch.ones(6, 3)
    for block in Blocks(rows_of(dense), 4 * PAIR_BYTES * 9):
        for y in range(3):
            own = block.columns.part(y, y + 1).candidates.tolist()
            assert all(a < b for a, b in pairwise(own))
            assert own[0] == 0


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("pairs", [1, 5, 40, 1000])
def test_transposed_through_a_file_is_the_transpose(graded: bool, pairs: int) -> None:  # noqa: FBT001
    rows, _ = random_rows(4, 23, 17, graded=graded)
    expected = rows.transpose()
    result = sparse.transposed(rows, pairs * sparse.PAIR_BYTES)
    assert torch.equal(result.offsets, expected.offsets)
    assert torch.equal(result.candidates, expected.candidates)
    assert result.candidates.dtype == expected.candidates.dtype
    assert result.n_candidates == expected.n_candidates
    if graded:
        assert result.grades is not None
        assert expected.grades is not None
        assert torch.equal(result.grades, expected.grades)
