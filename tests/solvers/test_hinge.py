"""Classifiers by the squared hinge loss equal the minimum found by plain descent."""

import pytest
import torch
from torch import Tensor

from rankfold.solvers.hinge import Limits, sparse_rows, squared_hinge
from rankfold.types import Interactions, from_pairs

EXACT = Limits(steps=50, products=200, gain=1e-9, residual=1e-6)


def rows_of(dense: Tensor) -> Interactions:
    places = dense.nonzero()
    return from_pairs(*places.T, dense[tuple(places.T)], tuple(dense.shape))


def problem(seed: int) -> tuple[Tensor, Tensor]:
    """Rows, of which one is empty, with columns of one row only; signs, of which some are 0."""
    rng = torch.Generator().manual_seed(seed)
    dense = torch.rand(30, 14, generator=rng) * (torch.rand(30, 14, generator=rng) < 0.3)
    dense[7] = 0
    dense[1:, 10:12] = 0  # columns of at most one row
    signs = torch.where(torch.rand(30, 5, generator=rng) < 0.3, 1.0, -1.0)
    signs[torch.rand(30, 5, generator=rng) < 0.1] = 0
    return dense, signs


def value(x: Tensor, signs: Tensor, weights: Tensor, bias: Tensor, cost: float) -> Tensor:
    """The formula of f, label by label."""
    short = (1 - signs * (x @ weights + bias)).clamp(min=0) * signs.abs()
    return 0.5 * weights.square().sum(0) + 0.5 * bias**2 + cost * short.square().sum(0)


@pytest.mark.parametrize("cost", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("seed", range(2))
def test_the_solution_is_the_minimum(seed: int, cost: float) -> None:
    dense, signs = problem(seed)
    x, t = dense.double(), signs.double()
    weights = torch.zeros(14, 5, dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS(
        [weights, bias], max_iter=2000, tolerance_grad=1e-12, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        search.zero_grad()
        total = value(x, t, weights, bias, cost).sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    search.step(closure)  # type: ignore[no-untyped-call]
    rows = sparse_rows(rows_of(dense))
    a = squared_hinge(rows, signs, cost, limits=EXACT)
    torch.testing.assert_close(dense.T @ a, weights.detach().float(), atol=2e-3, rtol=2e-3)
    torch.testing.assert_close(a.sum(0), bias.detach().float(), atol=2e-3, rtol=2e-3)
    torch.testing.assert_close(rows.weights(a), (dense.T @ a)[rows.names])
    assert 10 not in rows.names.tolist()
    ordinary = squared_hinge(rows, signs, cost)
    reached = value(dense, signs, dense.T @ ordinary, ordinary.sum(0), cost)
    assert float((reached / value(x, t, weights, bias, cost).detach()).max()) < 1.1


def test_a_search_begins_at_the_start() -> None:
    """From a solution nothing changes; a search that is cut short comes closer from there."""
    dense, signs = problem(3)
    rows = sparse_rows(rows_of(dense))
    solved = squared_hinge(rows, signs, 1.0, limits=EXACT)
    again = squared_hinge(rows, signs, 1.0, solved.clone(), Limits(steps=1))
    torch.testing.assert_close(again, solved, atol=1e-3, rtol=1e-3)
    assert (squared_hinge(rows, signs, 1.0, limits=Limits(steps=1)) - solved).abs().max() > 1e-2


def test_rows_without_columns_have_a_bias() -> None:
    """Two rows of a label, three others; no label at all."""
    rows = sparse_rows(rows_of(torch.zeros(5, 3)))
    signs = torch.tensor([1.0, 1.0, -1.0, -1.0, -1.0])[:, None]
    bias = squared_hinge(rows, signs, 1.0, limits=EXACT).sum(0)
    assert bias.item() == pytest.approx(-2 / 11, rel=1e-4)  # b + 2 (2 (b - 1) + 3 (b + 1)) = 0
    assert squared_hinge(rows, signs[:, :0], 1.0).shape == (5, 0)
