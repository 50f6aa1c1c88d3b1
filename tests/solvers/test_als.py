"""Each step is the exact minimiser of the dense objective over its side."""

import pytest
import torch
from torch import Tensor

from rankfold.kernels.sparse import csr
from rankfold.objectives.rg2 import rg2_value
from rankfold.solvers.als import candidate_step, query_step
from rankfold.types import Interactions

REG = 0.03


def random_rows(seed: int, m: int = 9, n: int = 7) -> tuple[Interactions, Tensor]:
    """Random interactions and the same as a dense 0/1 matrix; the first query has none."""
    rng = torch.Generator().manual_seed(seed)
    dense = (torch.rand(m, n, generator=rng) < 0.4).double()
    dense[0] = 0
    dense[1] = 1  # everything positive
    offsets = torch.cat([torch.zeros(1).long(), dense.sum(1).long().cumsum(0)])
    return Interactions(offsets, dense.nonzero()[:, 1].int(), None, n), dense


def dense_objective(r: Tensor, p: Tensor, q: Tensor, reg: float) -> Tensor:
    """The sum as METHODS writes it, over 2 N |D|; a query without candidates has weight 0."""
    n, pairs = r.shape[1], r.sum()
    counts = r.sum(dim=1)
    s = r * n / counts.clamp(min=1)[:, None] - 1
    fit = (counts[:, None] * (p @ q.T - s) ** 2).sum()
    penalty = reg * (n * (counts * (p**2).sum(1)).sum() + pairs * (q**2).sum())
    return (fit + penalty) / (2 * n * pairs)


@pytest.mark.parametrize("seed", range(5))
def test_value_is_the_dense_sum(seed: int) -> None:
    rows, r = random_rows(seed)
    rng = torch.Generator().manual_seed(seed + 100)
    p = torch.randn(9, 3, generator=rng, dtype=torch.float64)
    q = torch.randn(7, 3, generator=rng, dtype=torch.float64)
    expected = dense_objective(r, p, q, REG).item()
    assert rg2_value(rows, r @ q, p, q, REG) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_gradient_vanishes_after_each_step(seed: int) -> None:
    rows, r = random_rows(seed)
    rng = torch.Generator().manual_seed(seed)
    q = torch.randn(7, 3, generator=rng, dtype=torch.float64)
    p = query_step(rows, r @ q, q, REG).requires_grad_()
    (gradient,) = torch.autograd.grad(dense_objective(r, p, q, REG), p)
    torch.testing.assert_close(gradient, torch.zeros_like(p), atol=1e-10, rtol=0)
    p = p.detach()
    q = candidate_step(rows, r.T @ p, p, REG).requires_grad_()
    (gradient,) = torch.autograd.grad(dense_objective(r, p, q, REG), q)
    torch.testing.assert_close(gradient, torch.zeros_like(q), atol=1e-10, rtol=0)


def test_query_with_no_candidate_or_with_all_gets_zeros() -> None:
    """None: it has no weight. All: its targets are N/N - 1 = 0."""
    rows, r = random_rows(0)
    q = torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    p = query_step(rows, r @ q, q, REG)
    assert torch.equal(p[0], torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(p[1], torch.zeros(3, dtype=torch.float64), atol=1e-12, rtol=0)
    some = (r.sum(dim=1) > 0) & (r.sum(dim=1) < 7)
    assert p[some].abs().sum(dim=1).min() > 1e-3


def test_singular_gram_without_regularisation_gives_the_least_squares_solution() -> None:
    rows, r = random_rows(3)
    q = torch.randn(7, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    q = torch.cat([q, q[:, :1]], dim=1)  # rank 2 of width 3
    p = query_step(rows, r @ q, q, 0.0)
    assert p.isfinite().all()
    best = query_step(rows, r @ q[:, :2], q[:, :2], 0.0)
    torch.testing.assert_close(p @ q.T, best @ q[:, :2].T, atol=1e-6, rtol=1e-6)


def test_sparse_product_sums_the_rows_candidates() -> None:
    rows, r = random_rows(4)
    q = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(csr(rows) @ q, r.float() @ q)
    torch.testing.assert_close(csr(rows.transpose()) @ torch.ones(9, 1), r.T.float().sum(1, True))
