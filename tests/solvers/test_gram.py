"""The Gram matrix and its inverse in place equal the dense formulas."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankfold.solvers import gram as module
from rankfold.solvers.gram import gram, invert
from rankfold.solvers.progress import finished
from rankfold.types import Interactions, from_pairs


def random_rows(m: int, n: int, seed: int) -> Interactions:
    pairs = (torch.rand(m, n, generator=torch.Generator().manual_seed(seed)) < 0.3).nonzero()
    return from_pairs(pairs[:, 0], pairs[:, 1], None, (m, n))


@pytest.mark.parametrize("memory_budget", [1, 2**10, 2**30])
def test_gram_is_the_product(memory_budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TILE", 5)
    rows = random_rows(40, 23, 0)
    weight, scale = torch.rand(40), torch.rand(23) + 0.1
    x = torch.zeros(40, 23)
    x[rows.query_of_pair().long(), rows.candidates.long()] = 1.0
    expected = scale[:, None] * (x.T @ (weight[:, None] * x)) * scale
    result = finished(gram(rows, weight, scale, memory_budget))
    torch.testing.assert_close(result.tril(), expected.tril())


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 40), tile=st.integers(1, 41), seed=st.integers(0, 99))
def test_inverse_equals_the_dense_one(n: int, tile: int, seed: int) -> None:
    """Whatever the tiles; what is above the diagonal is never read."""
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(n, n, generator=rng, dtype=torch.float64)
    matrix = x @ x.T + 0.5 * torch.eye(n, dtype=torch.float64)
    lower = matrix.tril() + torch.full_like(matrix, torch.nan).triu(1)
    before, module.TILE = module.TILE, tile
    try:
        result = finished(invert(lower))
    finally:
        module.TILE = before
    assert result.data_ptr() == lower.data_ptr()
    torch.testing.assert_close(result, torch.linalg.inv(matrix), rtol=1e-8, atol=1e-8)
    assert torch.equal(result, result.T)


def test_float32_is_as_accurate_as_lapack() -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(700, 1500, generator=rng) * torch.rand(1500, generator=rng) ** 3
    matrix = x.T @ x
    matrix.diagonal().add_(0.5 * float(matrix.diagonal().mean()))
    exact = torch.linalg.inv(matrix.double())
    lapack = torch.cholesky_inverse(torch.linalg.cholesky(matrix))
    worst = (lapack - exact).abs().max()
    assert float((finished(invert(matrix)) - exact).abs().max()) < 4 * float(worst)
