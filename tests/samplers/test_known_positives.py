"""Exactly the known positives of a pool are detected."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rankfold.samplers import known_positives as module
from rankfold.samplers.known_positives import hits, hits_by_loops, own, places
from rankfold.types import Batch, Interactions, from_pairs


def pairs_of(density: float, shape: tuple[int, int]) -> Interactions:
    chosen = (torch.rand(shape) < density).nonzero()
    return from_pairs(chosen[:, 0], chosen[:, 1], None, shape)


@given(
    st.integers(1, 9), st.integers(1, 30), st.integers(1, 12), st.integers(1, 20), st.integers(0)
)
def test_equals_the_loops(m: int, n: int, batch: int, columns: int, seed: int) -> None:
    torch.manual_seed(seed % 2**60)
    pairs = pairs_of(float(torch.rand(())), (m, n))
    queries = torch.randint(m, (batch,))
    for shape in [(columns,), (batch, columns)]:
        ids = torch.randint(n, shape)
        expected = hits_by_loops(pairs, queries, ids)
        assert torch.equal(hits(pairs, queries, ids), expected)


@given(st.integers(1, 9), st.integers(1, 30), st.integers(1, 12), st.integers(0))
def test_places_equal_the_loops(m: int, n: int, batch: int, seed: int) -> None:
    torch.manual_seed(seed % 2**60)
    pairs = pairs_of(float(torch.rand(())), (m, n))
    queries, ids = torch.randint(m, (batch,)), torch.randint(n, (n,)).unique()
    expected = hits_by_loops(pairs, queries, ids).nonzero(as_tuple=True)
    for result, wanted in zip(places(pairs, queries, ids), expected, strict=True):
        assert torch.equal(result, wanted)


def test_the_loops_find_what_was_chosen() -> None:
    pairs = from_pairs(torch.tensor([0, 0, 2]), torch.tensor([1, 3, 0]), None, (3, 4))
    result = hits_by_loops(pairs, torch.tensor([2, 0, 1]), torch.tensor([0, 3, 3, 2]))
    assert result.tolist() == [[True, False, False, False], [False, True, True, False], [False] * 4]


def test_a_small_sieve_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs that share a cell of the sieve are still distinguished."""
    monkeypatch.setattr(module, "SIEVE_SIZE", 4)
    pairs, queries, ids = pairs_of(0.3, (8, 50)), torch.arange(8), torch.randint(50, (8, 40))
    assert torch.equal(hits(pairs, queries, ids), hits_by_loops(pairs, queries, ids))


def test_keys_do_not_overflow_at_millions() -> None:
    n = 2**31 - 1
    pairs = from_pairs(torch.tensor([0, 7]), torch.tensor([5, n - 1]), None, (8, n))
    assert pairs.candidates.dtype == torch.int32
    ids: Tensor = torch.tensor([n - 1, 5])
    queries = torch.tensor([7, 0])
    expected = [[True, False], [False, True]]
    assert hits(pairs, queries, ids).tolist() == expected
    assert hits(pairs, queries, ids.expand(2, 2)).tolist() == expected


def test_own_positive() -> None:
    batch = Batch(torch.tensor([0, 1]), torch.tensor([4, 2]))
    shared = [[True, False, True], [False, True, False]]
    assert own(batch, torch.tensor([4, 2, 4])).tolist() == shared
    each = torch.tensor([[2, 2, 4], [2, 4, 4]])
    assert own(batch, each).tolist() == [[False, False, True], [True, False, False]]
