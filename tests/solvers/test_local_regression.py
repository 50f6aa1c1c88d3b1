"""Regressions on neighbours agree with systems solved one by one, and with the whole inverse."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.solvers import local_regression as module
from rankfold.solvers.local_regression import regressed, regressed_reference
from rankfold.solvers.neighbours import Neighbours, gram_diagonal, neighbours
from rankfold.types import Interactions, from_pairs

N = 40


def pairs(seed: int, share: float = 0.2) -> Interactions:
    chosen = (torch.rand(60, N, generator=torch.Generator().manual_seed(seed)) < share).nonzero()
    return from_pairs(chosen[:, 0], chosen[:, 1], None, (60, N))


def solved(table: Neighbours, diagonal: Tensor, reg: float, budget: int = 2**30) -> Tensor:
    """F as a dense matrix."""
    result = regressed(table, diagonal, reg, memory_budget=budget, comm=SINGLE_PROCESS)
    assert torch.equal(result.ids, table.ids)
    return torch.zeros(N, N).scatter_add_(1, result.ids.long(), result.weights)


@given(
    seed=st.integers(0, 1000),
    most=st.sampled_from([1, 3, 10, 39]),
    reg=st.sampled_from([0.01, 1.0, 30.0]),
    budget=st.sampled_from([2**10, 2**30]),
    strong=st.sampled_from([2, 5, 50]),
)
def test_the_weights_are_those_of_the_reference(
    *, seed: int, most: int, reg: float, budget: int, strong: int
) -> None:
    rows, rng = pairs(seed, 0.05 + 0.2 * (seed % 2)), torch.Generator().manual_seed(seed)
    weight, scale = torch.rand(60, generator=rng) + 0.1, torch.rand(N, generator=rng) + 0.1
    table = neighbours(rows, weight, scale, most)
    diagonal = gram_diagonal(rows, weight, scale)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "STRONG", strong)
        expected = regressed_reference(table, diagonal, reg)
        result = solved(table, diagonal, reg, budget)
    torch.testing.assert_close(result.double(), expected, rtol=2e-3, atol=1e-4)


def test_with_all_neighbours_the_weights_are_those_of_the_inverse() -> None:
    rows, one = pairs(0, 0.5), torch.ones(60)
    matrix = torch.zeros(60, N, dtype=torch.float64)
    matrix[rows.query_of_pair().long(), rows.candidates.long()] = 1.0
    inverse = torch.linalg.inv(matrix.T @ matrix + 5 * torch.eye(N))
    expected = (-inverse / inverse.diagonal()).fill_diagonal_(0.0)
    assert float(expected.min()) < -0.01
    diagonal = gram_diagonal(rows, one, torch.ones(N))
    result = solved(neighbours(rows, one, torch.ones(N), N), diagonal, 5.0)
    torch.testing.assert_close(result.double(), expected.clamp(min=0.0), rtol=1e-3, atol=1e-5)


def test_a_large_regularisation_keeps_the_proportions_of_the_entries() -> None:
    rows, one, scale = pairs(1), torch.ones(60), torch.ones(N)
    table = neighbours(rows, one, scale, 5)
    result = regressed(
        table, gram_diagonal(rows, one, scale), 1e6, memory_budget=2**30, comm=SINGLE_PROCESS
    )
    torch.testing.assert_close(result.weights, table.weights / 1e6, rtol=1e-3, atol=0.0)


def test_a_cut_that_leaves_an_indefinite_matrix_is_survived() -> None:
    """Candidate 0 goes with 1 and 2, which go together more than their diagonals allow."""
    ids, weights = torch.zeros(N, 2, dtype=torch.int32), torch.zeros(N, 2)
    ids[:3] = torch.tensor([[1, 2], [2, 0], [1, 0]])
    weights[:3] = torch.tensor([[1.0, 1.0], [9.0, 1.0], [9.0, 1.0]])
    table, diagonal = Neighbours(ids, weights), torch.ones(N, dtype=torch.float64)
    result = solved(table, diagonal, 0.5)
    assert bool(result.isfinite().all())
    torch.testing.assert_close(result.double(), regressed_reference(table, diagonal, 0.5))


def test_blocks_do_not_change_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, one, scale = pairs(2), torch.ones(60), torch.ones(N)
    table, diagonal = neighbours(rows, one, scale, 10), gram_diagonal(rows, one, scale)
    whole = solved(table, diagonal, 1.0)
    monkeypatch.setattr(module, "_RUN", 7)
    monkeypatch.setattr(module, "_SYSTEMS", {"cpu": 3})
    torch.testing.assert_close(solved(table, diagonal, 1.0), whole)
