"""Each step is the minimiser of the dense objective over its side, however it is solved."""

import pytest
import torch
from dense import (
    OBJECTIVES,
    Case,
    dense_ials,
    dense_rg2,
    dense_sampled,
    dense_weighted,
    dense_wrmf,
    random_rows,
)
from torch import Tensor

from rankfold.kernels.sparse import blocks
from rankfold.objectives.implicit import ials, wrmf
from rankfold.objectives.quadratic import candidate_half, query_half, value
from rankfold.objectives.rg import rg2, rg2_sampled, rg2_weighted, rgx
from rankfold.solvers import pairs
from rankfold.solvers.als import balanced, candidate_step, query_step
from rankfold.solvers.conjugate_gradients import by_conjugate_gradients
from rankfold.solvers.least_squares import Solve, by_cholesky

EXACT = [by_cholesky, by_conjugate_gradients(40)]
each_solver = pytest.mark.parametrize("solve", EXACT, ids=["cholesky", "cg"])
each_case = pytest.mark.parametrize("case", OBJECTIVES, ids=lambda case: case.name)


@each_solver
@each_case
@pytest.mark.parametrize("seed", range(3))
def test_gradient_vanishes_after_each_step(case: Case, seed: int, solve: Solve) -> None:
    rows, r = random_rows(seed, graded=case.graded)
    objective = case.build(rows)
    rng = torch.Generator().manual_seed(seed)
    q = torch.randn(7, 3, generator=rng, dtype=torch.float64)
    p = query_step(objective, q, solve, None).requires_grad_()
    (gradient,) = torch.autograd.grad(case.dense(r, p, q), p)
    torch.testing.assert_close(gradient, torch.zeros_like(p), atol=1e-6, rtol=0)
    p = p.detach()
    start = torch.randn(7, 3, generator=rng, dtype=torch.float64)
    q = candidate_step(objective, rows.transpose(), p, solve, start).requires_grad_()
    (gradient,) = torch.autograd.grad(case.dense(r, p, q), q)
    torch.testing.assert_close(gradient, torch.zeros_like(q), atol=1e-6, rtol=0)


@each_case
def test_a_few_cg_steps_never_raise_the_objective(case: Case) -> None:
    rows, _ = random_rows(8, m=40, n=25, graded=case.graded)
    objective, columns = case.build(rows), rows.transpose()
    rng = torch.Generator().manual_seed(3)
    p, q = torch.randn(40, 4, generator=rng), torch.randn(25, 4, generator=rng)
    solve, before = by_conjugate_gradients(1), value(objective, p, q)
    for _ in range(4):
        p = query_step(objective, q, solve, p)
        q = candidate_step(objective, columns, p, solve, q)
        now = value(objective, p, q)
        assert now <= before * (1 + 1e-5)
        before = now


@each_case
def test_balanced_vectors_keep_the_scores_and_have_equal_regularisers(case: Case) -> None:
    rows, _ = random_rows(8, m=40, n=25, graded=case.graded)
    o = case.build(rows)
    rng = torch.Generator().manual_seed(3)
    p, q = (torch.randn(n, 4, generator=rng, dtype=torch.float64) for n in (40, 25))
    p *= torch.tensor([5.0, 1.0, 0.2, 0.1])
    new_p, new_q = balanced((query_half(o), candidate_half(o, rows.transpose())), p, q)
    torch.testing.assert_close(new_p @ new_q.T, p @ q.T)
    if float(o.query_reg.sum()) > 0:
        a, c = (new_p.T * o.query_reg) @ new_p, (new_q.T * o.candidate_reg) @ new_q
        torch.testing.assert_close(a, c)
        assert value(o, new_p, new_q) < value(o, p, q)


LARGER = [
    Case("ials", lambda rows: ials(rows, 0.003, 0.03), dense_ials),
    Case("wrmf-graded", lambda rows: wrmf(rows, 1.0, 10.0), dense_wrmf, graded=True),
    Case("weighted", lambda rows: rg2_weighted(rows, 0.003, 0.015), dense_weighted("weighted")),
    Case("sampled", lambda rows: rg2_sampled(rows, 0.03, 100), dense_sampled),
]


@pytest.mark.parametrize("case", LARGER, ids=lambda case: case.name)
def test_enough_cg_steps_are_cholesky_in_single_precision(case: Case) -> None:
    rows, _ = random_rows(5, m=300, n=200, graded=case.graded)
    objective, columns = case.build(rows), rows.transpose()
    rng = torch.Generator().manual_seed(6)
    p, q = torch.randn(300, 16, generator=rng), torch.randn(200, 16, generator=rng)
    p[0] = 0  # a query without pairs
    many = by_conjugate_gradients(40)
    for step, others, start in (
        (lambda *how: query_step(objective, *how), q, p),
        (lambda *how: candidate_step(objective, columns, *how), p, q),
    ):
        expected = step(others, by_cholesky, None)
        tight = {"rtol": 1e-4, "atol": 1e-4 * float(expected.abs().max())}
        torch.testing.assert_close(step(others, many, None), expected, **tight)
        torch.testing.assert_close(step(others, many, start.clone()), expected, **tight)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("case", LARGER, ids=lambda case: case.name)
def test_more_cg_steps_than_needed_are_harmless(case: Case, seed: int) -> None:
    """Once a row is solved its residual is rounding, and must not move the row."""
    rows, _ = random_rows(seed, m=300, n=200, graded=case.graded)
    objective = case.build(rows)
    rng = torch.Generator().manual_seed(6)
    p, q = torch.randn(300, 8, generator=rng), torch.randn(200, 8, generator=rng)
    p[0] = 0  # a query without pairs
    expected = query_step(objective, q, by_cholesky, None)
    tight = {"rtol": 1e-4, "atol": 1e-4 * float(expected.abs().max())}
    for start in (None, p):
        actual = query_step(objective, q, by_conjugate_gradients(100), start)
        torch.testing.assert_close(actual, expected, **tight)


@each_solver
def test_rows_with_a_singular_system_get_zeros_from_any_start(solve: Solve) -> None:
    rows, _ = random_rows(5)
    rng = torch.Generator().manual_seed(6)
    p, q = torch.randn(9, 3, generator=rng), torch.randn(7, 3, generator=rng)
    result = query_step(rg2_weighted(rows, 0.003, 0.015), q, solve, p)
    assert not result[0].any()  # the query without pairs has weight and regulariser 0
    assert result[1:].any(dim=1).all()


@each_solver
@each_case
def test_block_size_changes_nothing(
    case: Case, solve: Solve, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, _ = random_rows(6, m=50, n=30, graded=case.graded)
    objective, columns = case.build(rows), rows.transpose()
    rng = torch.Generator().manual_seed(1)
    q = torch.randn(30, 3, generator=rng, dtype=torch.float64)
    p = torch.randn(50, 3, generator=rng, dtype=torch.float64)

    def both() -> tuple[Tensor, Tensor]:
        first = query_step(objective, q, solve, p.clone())
        return first, candidate_step(objective, columns, first, solve, q.clone())

    expected = both()
    monkeypatch.setattr(pairs, "blocks", lambda rows, *_: blocks(rows, 7, 100))
    for actual, whole in zip(both(), expected, strict=True):
        torch.testing.assert_close(actual, whole, rtol=1e-9, atol=1e-9)


@each_solver
@pytest.mark.parametrize(
    "case",
    [
        Case("rg2", lambda rows: rg2(rows, 0.0), dense_rg2(-0.5, 0.0)),
        Case("ials", lambda rows: ials(rows, 0.0, 0.2), dense_ials),
        Case("wrmf-graded", lambda rows: wrmf(rows, 0.0, 0.4), dense_wrmf, graded=True),
        Case("rgx", lambda rows: rgx(rg2_weighted(rows, 0.0, 0.4)), dense_weighted("weighted")),
        Case("sampled", lambda rows: rg2_sampled(rows, 0.0, 3), dense_sampled),
    ],
    ids=lambda case: case.name,
)
def test_equal_components_have_equal_shares_without_reg(case: Case, solve: Solve) -> None:
    """A singular Gram matrix: the shortest minimiser is that without the copy."""
    rows, _ = random_rows(9, m=20, n=15, graded=case.graded)
    objective, columns = case.build(rows), rows.transpose()
    rng = torch.Generator().manual_seed(2)
    q = torch.randn(15, 2, generator=rng, dtype=torch.float64)
    p = query_step(objective, q, solve, None)
    twice = query_step(objective, q[:, [0, 1, 1]], solve, None)
    torch.testing.assert_close(twice, p[:, [0, 1, 1]] / torch.tensor([1.0, 2.0, 2.0]))
    y = candidate_step(objective, columns, p, solve, None)
    again = candidate_step(objective, columns, p[:, [0, 1, 1]], solve, None)
    torch.testing.assert_close(again, y[:, [0, 1, 1]] / torch.tensor([1.0, 2.0, 2.0]))
    assert twice.isfinite().all()
    assert again.isfinite().all()


@pytest.mark.parametrize("seed", range(3))
def test_matrix_regulariser_gives_the_steps_of_appendix_a6(seed: int) -> None:
    """Without extra weight; on the objective's scale 1/2N the appendix's lambda is 2N reg."""
    rows, r = random_rows(seed)
    n, sizes, reg = 7, r.sum(dim=1), 0.05
    objective = rg2_weighted(rows, reg, 0.0, regulariser="matrix")
    w, s = torch.diag(sizes), n * r / sizes.clamp(min=1)[:, None] - 1
    lam = 2 * n * reg
    rng = torch.Generator().manual_seed(seed)
    q = torch.randn(7, 3, generator=rng, dtype=torch.float64)
    p = query_step(objective, q, by_cholesky, None)
    left = torch.linalg.inv(w + lam * torch.eye(9, dtype=torch.float64))
    torch.testing.assert_close(p, left @ w @ s @ q @ torch.linalg.inv(q.T @ q))
    result = candidate_step(objective, rows.transpose(), p, by_cholesky, None)
    gram = lam * p.T @ p + p.T @ w @ p
    torch.testing.assert_close(result, s.T @ w @ p @ torch.linalg.inv(gram))


@pytest.mark.parametrize("seed", range(3))
def test_candidates_of_rgx_are_coupled_only_through_their_mean(seed: int) -> None:
    """Solve for the mean first, then for each candidate by itself."""
    rows, r = random_rows(seed)
    alpha, objective = 0.4, rgx(rg2_weighted(rows, 0.03, 0.4))
    p = torch.randn(9, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    a = r.sum(dim=1) / (2 * 7)
    gram, line = p.T @ (a[:, None] * p), a @ p
    own = torch.einsum("xy,xi,xj->yij", r, p, p)
    eye = torch.eye(3, dtype=torch.float64)
    inverses = torch.linalg.inv(gram + alpha * own + objective.candidate_reg[:, None, None] * eye)
    right = (0.5 + alpha) * r.T @ p - line
    alone = torch.einsum("yi,yij->yj", right, inverses)
    mean = torch.linalg.solve((eye - gram @ inverses.mean(dim=0)).T, alone.mean(dim=0))
    expected = torch.einsum("yi,yij->yj", right + mean @ gram, inverses)
    actual = candidate_step(objective, rows.transpose(), p, by_cholesky, None)
    torch.testing.assert_close(actual, expected, atol=1e-8, rtol=1e-6)
