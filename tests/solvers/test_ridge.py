"""Solutions without the matrix equal those with it."""

import pytest
import torch
from torch import Tensor

from rankfold.solvers.ridge import Gram, inverse_diagonal, solve
from rankfold.types import from_pairs

M, N = 60, 40


@pytest.fixture
def system() -> tuple[Gram, Tensor, Tensor]:
    """The product, shifts, and the matrix with the shifts."""
    rng = torch.Generator().manual_seed(0)
    x = (torch.rand(M, N, generator=rng) < torch.rand(N, generator=rng)).float()
    x[:, 0] = 0  # a candidate without pairs
    pairs = x.nonzero()
    rows = from_pairs(pairs[:, 0], pairs[:, 1], None, (M, N))
    weight, scale = torch.rand(M, generator=rng), torch.rand(N, generator=rng) + 0.1
    shift = torch.rand(N, generator=rng) + 0.1
    matrix = scale[:, None] * (x.T @ (weight[:, None] * x)) * scale
    return Gram(rows, rows.transpose(), weight, scale), shift, matrix + torch.diag(shift)


def test_diagonal(system: tuple[Gram, Tensor, Tensor]) -> None:
    gram, shift, matrix = system
    torch.testing.assert_close(gram.diagonal, matrix.diagonal() - shift)


@pytest.mark.parametrize("tolerance", [1e-1, 1e-5])
def test_residuals_are_below_the_tolerance(
    system: tuple[Gram, Tensor, Tensor], tolerance: float
) -> None:
    gram, shift, matrix = system
    block = torch.randn(N, 7, generator=torch.Generator().manual_seed(1))
    block[:, 3] = 0
    result = solve(gram, shift, block, tolerance)
    residuals = (matrix @ result - block).norm(dim=0)
    assert bool((residuals <= 1.1 * tolerance * block.norm(dim=0)).all())
    assert not result[:, 3].any()
    if tolerance < 1e-3:
        expected = torch.linalg.solve(matrix, block)
        torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-4)


def test_diagonal_of_the_inverse_is_estimated(system: tuple[Gram, Tensor, Tensor]) -> None:
    gram, shift, matrix = system
    exact = torch.linalg.inv(matrix).diagonal()
    errors = [
        float(
            (inverse_diagonal(gram, shift, n, torch.Generator().manual_seed(0)) / exact - 1).std()
        )
        for n in (16, 4096)
    ]
    assert errors[1] < 0.02 < errors[0]
    few = inverse_diagonal(gram, shift, 1, torch.Generator().manual_seed(0))
    assert bool((few <= 1 / shift).all())
    assert bool((few >= 1 / (gram.diagonal + shift)).all())
