"""The strongest co-occurrences agree with a dense matrix; thinning is right in expectation."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rankfold.solvers import neighbours as module
from rankfold.solvers.neighbours import Neighbours, neighbours, neighbours_reference, thinned
from rankfold.types import Interactions, from_pairs


def pairs(seed: int, shape: tuple[int, int] = (60, 40), share: float = 0.2) -> Interactions:
    rng = torch.Generator().manual_seed(seed)
    chosen = (torch.rand(shape, generator=rng) < share).nonzero()
    return from_pairs(chosen[:, 0], chosen[:, 1], None, shape)


def dense(found: Neighbours, n: int) -> Tensor:
    """The cut matrix; an id without weight adds nothing."""
    return torch.zeros(n, n).scatter_add_(1, found.ids.long(), found.weights)


@given(seed=st.integers(0, 1000), most=st.sampled_from([1, 3, 39, 100]), graded=st.booleans())
def test_the_cut_matrix_is_that_of_the_reference(*, seed: int, most: int, graded: bool) -> None:
    rows, rng = pairs(seed), torch.Generator().manual_seed(seed)
    if graded:
        grades = torch.rand(rows.n_pairs, generator=rng) + 0.5
        rows = Interactions(rows.offsets, rows.candidates, grades, rows.n_candidates)
    weight, scale = torch.rand(60, generator=rng) + 0.1, torch.rand(40, generator=rng) + 0.1
    result = neighbours(rows, weight, scale, most, memory_budget=2**14)
    expected = neighbours_reference(rows, weight, scale, most)
    torch.testing.assert_close(result.weights, expected.weights, rtol=1e-4, atol=1e-6)
    # weights are distinct, so that the ids are the same as well
    torch.testing.assert_close(dense(result, 40), dense(expected, 40), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("budget", [2**14, 2**30])
@pytest.mark.parametrize("at_once", [8, 100, 2**18])
def test_the_number_of_products_at_once_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, at_once: int, budget: int
) -> None:
    """Also where it is less than the products of one candidate, and where pairs are not copied."""
    monkeypatch.setitem(module._BLOCK_PRODUCTS, "cpu", at_once)
    rows, weight, scale = pairs(4, (500, 12), 0.4), torch.rand(500) + 0.1, torch.rand(12) + 0.1
    assert 2**14 < 8 * rows.n_pairs < 2**30
    expected = neighbours_reference(rows, weight, scale, 11)
    result = neighbours(rows, weight, scale, 11, memory_budget=budget)
    torch.testing.assert_close(dense(result, 12), dense(expected, 12), rtol=1e-5, atol=1e-6)


def test_more_candidates_than_rows_of_a_key() -> None:
    """Each row, candidate and weight share 63 bits: of 2^30 candidates, two rows at a time."""
    n, chosen = 2**30, torch.tensor([0, 3, 2**20, 2**30 - 1])
    rows = from_pairs(torch.zeros(4, dtype=torch.int64), chosen, None, (1, n))
    chunks = module._chunked(rows, 8)
    left = Interactions(torch.tensor([0, 1, 2]), torch.zeros(2, dtype=torch.int32), None, 1)
    left = replace(left, grades=torch.tensor([0.5, 2.0]), n_candidates=n)
    codes, values = module._entries(left, chunks, n.bit_length(), 1)
    real = codes % 2 ** n.bit_length() < n
    assert codes[real].tolist() == [c + 2**31 * row for row in (0, 1) for c in chosen.tolist()]
    assert values[real].tolist() == [0.5] * 4 + [2.0] * 4


def test_a_candidate_is_not_its_own_neighbour() -> None:
    result = neighbours(pairs(0), torch.ones(60), torch.ones(40), 39)
    assert float(dense(result, 40).diagonal().abs().max()) == 0.0


def test_candidates_without_pairs_have_no_neighbours() -> None:
    rows = from_pairs(torch.tensor([0, 0]), torch.tensor([1, 2]), None, (1, 5))
    result = dense(neighbours(rows, torch.ones(1), torch.ones(5), 3), 5)
    expected = torch.zeros(5, 5)
    expected[1, 2] = expected[2, 1] = 1.0
    torch.testing.assert_close(result, expected)


def test_short_histories_are_not_thinned() -> None:
    rows = pairs(1)
    kept, weight = thinned(rows, torch.Generator())
    assert kept is rows
    assert bool((weight == 1).all())


def test_thinned_histories_have_the_right_weight_in_expectation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MIN_PRODUCTS", 600)
    monkeypatch.setattr(module, "PRODUCTS_PER_PAIR", 1)
    rows, n = pairs(2, (8, 30), 0.6), 30
    whole = dense(neighbours(rows, torch.ones(8), torch.ones(n), n), n)
    total, draws = torch.zeros(n, n), 400
    for seed in range(draws):
        fewer, weight = thinned(rows, torch.Generator().manual_seed(seed))
        assert float((fewer.counts().double() ** 2).sum()) < 2 * 600
        total += dense(neighbours(fewer, weight, torch.ones(n), n), n)
    assert fewer.n_pairs < rows.n_pairs
    assert float((total / draws).sum()) == pytest.approx(float(whole.sum()), rel=0.02)
    assert float((total / draws - whole).abs().max()) < 2.0  # counts are up to 8
