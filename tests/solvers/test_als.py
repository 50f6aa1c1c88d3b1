"""Each step is the minimiser of the dense objective over its side, however it is solved."""

import pytest
import torch
from dense import OBJECTIVES, Case, random_rows

from rankfold.objectives.quadratic import value
from rankfold.solvers.als import (
    Solve,
    by_cholesky,
    by_conjugate_gradients,
    candidate_step,
    query_step,
)

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
