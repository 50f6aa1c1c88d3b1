"""The released steps solve the systems of the released code, written out densely."""

from dataclasses import replace

import pytest
import torch
from dense import ALPHA, REG, random_rows
from torch import Tensor

from rankfold.objectives.quadratic import Half, candidate_half, query_half
from rankfold.objectives.rg import (
    released_candidate_half,
    released_query_half,
    rg2,
    rg2_weighted,
    rgx,
)
from rankfold.solvers.als import half_step
from rankfold.solvers.conjugate_gradients import by_conjugate_gradients
from rankfold.solvers.least_squares import by_cholesky
from rankfold.types import Interactions

BETA, M, N, D = 0.3, 9, 7, 3
EYE = torch.eye(D, dtype=torch.float64)
each_solver = pytest.mark.parametrize(
    "solve", [by_cholesky, by_conjugate_gradients(40)], ids=["cholesky", "cg"]
)
each_form = pytest.mark.parametrize("centred", [False, True], ids=["rg2", "rgx"])


def halves(rows: Interactions, alpha: float, *, centred: bool) -> tuple[Half, Half]:
    objective = rg2_weighted(rows, REG, alpha)
    objective = rgx(objective) if centred else objective
    columns = rows.transpose()
    return (
        released_query_half(objective, REG, BETA),
        released_candidate_half(objective, columns, BETA),
    )


def vectors(n: int, seed: int) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(n, D, generator=rng, dtype=torch.float64)


@each_form
@each_solver
@pytest.mark.parametrize("seed", range(2))
def test_query_step(seed: int, solve: object, *, centred: bool) -> None:
    """RG2: lambda once more. RGx: (1 - beta) times the background's Gram matrix, not centred."""
    rows, r = random_rows(seed)
    q, sizes = vectors(N, seed), r.sum(dim=1)
    actual = half_step(halves(rows, ALPHA, centred=centred)[0], q, solve, None)
    for x in range(M):
        a, own = sizes[x] / (2 * N), q[r[x] > 0]
        background = a * (1 - BETA if centred else 1) * q.T @ q
        reg = REG * (sizes[x] / 2 + ALPHA * N * (sizes[x] > 0)) + (0 if centred else REG)
        gram = background + ALPHA * own.T @ own + reg * EYE
        right = -a * q.sum(dim=0) + (0.5 + ALPHA) * own.sum(dim=0)
        expected = torch.linalg.lstsq(gram, right[:, None], driver="gelsd").solution[:, 0]
        torch.testing.assert_close(actual[x], expected, atol=1e-9, rtol=1e-9)


@each_form
@each_solver
@pytest.mark.parametrize("seed", range(2))
def test_candidate_step(seed: int, solve: object, *, centred: bool) -> None:
    """Plus h where the objective has minus; RGx's Gram matrix as in the query step."""
    rows, r = random_rows(seed)
    p, a = vectors(M, seed), r.sum(dim=1) / (2 * N)
    result = half_step(halves(rows, ALPHA, centred=centred)[1], p, solve, None)
    background = (1 - BETA if centred else 1) * p.T @ (a[:, None] * p)
    reg = REG * (r.sum() / (2 * N) + ALPHA * M)
    for y in range(N):
        own = p[r[:, y] > 0]
        gram = background + ALPHA * own.T @ own + reg * EYE
        right = a @ p + (0.5 + ALPHA) * own.sum(dim=0)
        torch.testing.assert_close(result[y], torch.linalg.solve(gram, right), atol=1e-9, rtol=1e-9)


def test_without_extra_weight_beta_only_scales_every_iterate() -> None:
    """So fixed points too: RG2's (with the opposite sign in both), scores times 1/(1 - beta)."""
    rows, _ = random_rows(3)
    query, candidate = halves(rows, 0.0, centred=True)
    plain = rg2_weighted(rows, REG, 0.0)
    exact = query_half(plain), candidate_half(plain, rows.transpose())
    turned = replace(exact[1], line_other=-exact[1].line_other)
    ours = vectors(N, 0)
    theirs = ours / (1 - BETA) ** 0.5
    for _ in range(5):
        p = half_step(exact[0], ours, by_cholesky, None)
        x = half_step(query, theirs, by_cholesky, None)
        torch.testing.assert_close(x, p / (1 - BETA) ** 0.5)
        ours = half_step(turned, p, by_cholesky, None)
        theirs = half_step(candidate, x, by_cholesky, None)
        torch.testing.assert_close(x @ theirs.T, p @ ours.T / (1 - BETA))


def converged(query: Half, candidate: Half, seed: int, sweeps: int) -> Tensor:
    """The scores at the end of many sweeps."""
    q = vectors(N, seed)
    for _ in range(sweeps):
        p = half_step(query, q, by_cholesky, None)
        q = half_step(candidate, p, by_cholesky, None)
    return half_step(query, q, by_cholesky, None) @ q.T


def test_with_the_right_sign_scores_equal_rg2_divided_by_1_minus_beta() -> None:
    """Global optimum against global optimum, with all components: every run reaches it."""
    rows, r = random_rows(4)
    query, candidate = halves(rows, 0.0, centred=True)
    candidate = replace(candidate, line_other=-candidate.line_other)
    actual = converged(query, candidate, 1, sweeps=400)
    objective = rg2(rows, REG)
    sizes = r.sum(dim=1, keepdim=True)
    target = torch.where(sizes > 0, sizes.clamp(min=1) ** -0.5, 0.0) * (N * r - sizes)
    u, sigma, v = torch.linalg.svd(target, full_matrices=False)
    tau = REG * float(objective.query_weight.sum() * N) ** 0.5
    shrunk = (u[:, :D] * (sigma[:D] - tau).clamp(min=0)) @ v[:D]
    expected = torch.where(sizes > 0, sizes.clamp(min=1) ** -0.5, 0.0) * shrunk / (1 - BETA)
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)


def test_with_the_released_sign_scores_differ() -> None:
    """The opposite sign is not a matter of scale: it leads to other scores."""
    rows, _ = random_rows(4)
    query, candidate = halves(rows, 0.0, centred=True)
    right = replace(candidate, line_other=-candidate.line_other)
    released, exact = (converged(query, half, 1, sweeps=400) for half in (candidate, right))
    scale = float((released * exact).sum() / (exact * exact).sum())
    assert float((released - scale * exact).norm()) > 0.05 * float(released.norm())
