"""The strongest co-occurrences agree with a dense matrix; thinning is right in expectation."""

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
