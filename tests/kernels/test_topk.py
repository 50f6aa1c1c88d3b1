"""The fast top-k is the stable sort, ties and all."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankfold.kernels.topk import top_k, top_k_reference


def assert_same(scores: torch.Tensor, k: int) -> None:
    fast, slow = top_k(scores, k), top_k_reference(scores, k)
    assert torch.equal(fast.ids, slow.ids)
    assert torch.equal(fast.scores, slow.scores + 0.0)


@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(0, 5),
    n=st.integers(1, 3000),
    k=st.integers(1, 40),
    levels=st.sampled_from([1, 2, 5, 50, 10**6]),
    hidden=st.sampled_from([0.0, 0.3, 0.99, 1.0]),
)
def test_equals_the_reference(
    seed: int, rows: int, n: int, k: int, levels: int, hidden: float
) -> None:
    """Few levels make many ties; some or all entries are -inf."""
    rng = torch.Generator().manual_seed(seed)
    scores = torch.randint(-levels, levels + 1, (rows, n), generator=rng) / 7
    scores[torch.rand(rows, n, generator=rng) < hidden] = -torch.inf
    assert_same(scores, k)


@pytest.mark.parametrize("k", [1, 3, 20])
def test_ties_at_the_edge_of_blocks(k: int) -> None:
    """The largest value everywhere: the first k columns win, wherever blocks end."""
    for n in (5000, 5003, 4096):
        assert top_k(torch.ones(2, n), k).ids.tolist() == [list(range(k))] * 2


def test_signed_zeros_are_equal() -> None:
    scores = torch.tensor([[0.0, -0.0, 0.0, -1.0, -0.0]])
    assert top_k(scores, 4).ids.tolist() == [[0, 1, 2, 4]]


def test_every_kind_of_float_sorts_right() -> None:
    values = [3e38, 1.0, 1e-45, 0.0, -1e-45, -1.0, -3e38, torch.inf]
    scores = torch.tensor([values])
    assert top_k(scores, 8).ids.tolist() == [[7, 0, 1, 2, 3, 4, 5, 6]]


def test_what_is_minus_infinity_is_never_returned() -> None:
    scores = torch.full((1, 2000), -torch.inf)
    scores[0, [1999, 17]] = torch.tensor([1.0, 2.0])
    found = top_k(scores, 4)
    assert found.ids.tolist() == [[17, 1999, -1, -1]]
    assert found.scores.tolist() == [[2.0, 1.0, -torch.inf, -torch.inf]]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_floats(dtype: torch.dtype) -> None:
    scores = torch.randn(3, 3000, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert torch.equal(top_k(scores, 10).ids, top_k_reference(scores, 10).ids)
