"""Newton-CG has the documented loss, gradient and curvature, and reaches the exact minimum."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from dense import random_rows
from encoded_sides import (
    ENCODERS,
    REG,
    dense_value,
    mlp,
    planted,
    problem_of,
    random,
    tables,
    through_mlp,
    unchanged,
)
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rankfold.errors import UserError
from rankfold.solvers.newton_cg import (
    Iterate,
    NewtonLimits,
    Params,
    flatten,
    newton_cg,
    newton_step,
    start,
)
from rankfold.solvers.ranking_loss import (
    Vectors,
    gauss_newton_product,
    hessian_product,
    loss_and_gradient,
    loss_at,
    rg2_value_and_gradient,
)
from rankfold.types import Interactions, from_pairs

EXACT = NewtonLimits(steps=200, residual=1e-12, progress=0.0)


CURVATURES = [gauss_newton_product, hessian_product]


# ------------------------------------------------------------------------ steps


@pytest.mark.parametrize("curvature", CURVATURES)
@pytest.mark.parametrize("side", ["p", "q"])
def test_one_step_solves_a_linear_side(curvature: Any, side: str) -> None:
    """With the other side fixed the loss is quadratic: an undamped step reaches its minimum."""
    rows, dense = random_rows(3)
    params = tables(9, 7)
    fixed = {name: table for name, table in params.items() if name != side}
    free = {side: params[side]}
    problem = problem_of(lambda p: unchanged({**fixed, **p}), free, rows)
    state = newton_step(problem, start(problem, flatten(free), damping=0.0), curvature, EXACT)
    assert state["gradient"].norm() < 1e-10
    step = solve_queries if side == "p" else solve_candidates
    torch.testing.assert_close(state["params"].view_as(free[side]), step(dense, *fixed.values()))


def solve_queries(dense: Tensor, candidates: Tensor) -> Tensor:
    """The exact minimum over all query vectors, one dense system for each."""
    n, pairs = dense.shape[1], dense.sum()
    eye = torch.eye(candidates.shape[1], dtype=torch.float64)
    sizes = dense.sum(dim=1)
    matrices = (sizes / (n * pairs))[:, None, None] * (candidates.T @ candidates) + REG * eye
    right = (dense @ candidates - (sizes / n)[:, None] * candidates.sum(dim=0)) / pairs
    return torch.linalg.solve(matrices, right[..., None])[..., 0]


def solve_candidates(dense: Tensor, queries: Tensor) -> Tensor:
    sizes, n, pairs = dense.sum(dim=1), dense.shape[1], dense.sum()
    eye = torch.eye(queries.shape[1], dtype=torch.float64)
    matrix = queries.T @ (sizes[:, None] * queries) / (n * pairs) + REG * eye
    right = (dense.T @ queries - sizes @ queries / n) / pairs
    return torch.linalg.solve(matrix, right.T).T


def run(
    make: Any,
    encode: Any,
    rows: Interactions,
    reg: float = REG,
    *,
    tolerance: float = 0.0,
    **options: Any,
) -> list[Iterate]:
    """The steps until the norm of the gradient is the tolerance."""
    iterates = []
    for iterate in newton_cg(encode, make(rows.n_queries, rows.n_candidates), rows, reg, **options):
        iterates.append(iterate)
        if iterate.gradient_norm <= tolerance:
            break
    return iterates


@pytest.mark.parametrize(
    ("curvature", "most"), [(gauss_newton_product, 300), (hessian_product, 30)]
)
def test_tables_end_where_alternating_exact_solves_end(curvature: Any, most: int) -> None:
    rows, dense = random_rows(1, 20, 15)
    options = {"curvature": curvature, "steps": most, "tolerance": 1e-7}
    last = run(tables, unchanged, rows, **options)[-1]
    assert last.gradient_norm < 1e-7
    candidates = tables(20, 15)["q"]
    for _ in range(1000):
        queries = solve_queries(dense, candidates)
        candidates = solve_candidates(dense, queries)
    squares = (queries**2).sum() + (candidates**2).sum()
    best = dense_value(dense, queries, candidates) + REG / 2 * squares
    assert last.loss == pytest.approx(best.item(), rel=1e-6)


@pytest.mark.parametrize("curvature", CURVATURES)
@pytest.mark.parametrize(("make", "encode"), ENCODERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_loss_falls_with_every_step(make: Any, encode: Any, curvature: Any, dtype: Any) -> None:
    rows = planted()
    params = {name: p.to(dtype) for name, p in make(60, 50).items()}
    iterates = list(newton_cg(encode, params, rows, 1e-4, steps=15, curvature=curvature))
    losses = [loss_at(problem_of(encode, params, rows, 1e-4), flatten(params))]
    losses += [iterate.loss for iterate in iterates]
    assert len(losses) == 16
    assert all(after < before for before, after in pairwise(losses))
    last = problem_of(encode, params, rows, 1e-4), flatten(iterates[-1].params)
    assert loss_at(*last) == pytest.approx(losses[-1], rel=1e-6)
    assert loss_and_gradient(*last)[1].norm() == pytest.approx(iterates[-1].gradient_norm)


def test_mlp_ends_below_adam() -> None:
    rows = planted()
    last = run(mlp, through_mlp, rows, 1e-4, steps=40)[-1]
    problem = problem_of(through_mlp, mlp(60, 50), rows, 1e-4)
    for rate in (0.1, 0.03, 0.01):
        vector = torch.nn.Parameter(flatten(mlp(60, 50)))
        adam = torch.optim.Adam([vector], rate)
        for _ in range(200):
            vector.grad = loss_and_gradient(problem, vector.detach())[1]
            adam.step()
        assert last.loss < loss_at(problem, vector.detach())


@pytest.mark.parametrize("curvature", CURVATURES)
@pytest.mark.parametrize(("make", "encode"), ENCODERS)
def test_resumed_run_equals_an_uninterrupted_one(make: Any, encode: Any, curvature: Any) -> None:
    rows = planted()
    whole = run(make, encode, rows, curvature=curvature, steps=6)
    saved = {name: tensor.clone() for name, tensor in whole[2].state.items()}
    rest = run(make, encode, rows, curvature=curvature, steps=3, state=saved)
    for one, other in zip(whole[3:], rest, strict=True):
        assert (one.loss, one.gradient_norm) == (other.loss, other.gradient_norm)
        for name, tensor in one.state.items():
            assert torch.equal(tensor, other.state[name]), name


# ------------------------------------------------------------------------ hard cases


def test_parameters_of_the_caller_stay() -> None:
    params = tables(9, 7)
    list(newton_cg(unchanged, params, random_rows(1)[0], REG, steps=3))
    assert all(
        torch.equal(p, q) for p, q in zip(params.values(), tables(9, 7).values(), strict=True)
    )


@pytest.mark.parametrize("curvature", CURVATURES)
def test_rows_without_pairs_are_drawn_to_0(curvature: Any) -> None:
    """The first query has no pair; the last candidate gets none here. Neither harms the others."""
    full, _ = random_rows(5)
    keep = full.candidates != 6
    rows = from_pairs(full.query_of_pair()[keep], full.candidates[keep], None, (9, 7))
    last = run(tables, unchanged, rows, 0.01, curvature=curvature, tolerance=1e-9, steps=300)[-1]
    assert last.gradient_norm < 1e-8
    assert last.params["p"][0].norm() < 1e-6
    assert flatten(last.params).isfinite().all()


@pytest.mark.parametrize("curvature", CURVATURES)
@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (6, 1)])
def test_one_query_or_one_candidate(shape: tuple[int, int], curvature: Any) -> None:
    """Every query chooses the first candidate: alone, it is to have the score 0."""
    m, n = shape
    rows = from_pairs(torch.arange(m), torch.zeros(m).long(), None, (m, n))
    last = run(tables, unchanged, rows, 0.0, curvature=curvature, tolerance=1e-9)[-1]
    scores = last.params["p"] @ last.params["q"].T
    target = torch.full((m, n), -1.0, dtype=torch.float64)
    target[:, 0] += n
    torch.testing.assert_close(scores, target, atol=1e-5, rtol=0)


def test_without_pairs_only_the_regulariser_is_left() -> None:
    rows = Interactions(torch.zeros(4).long(), torch.zeros(0).int(), None, 2)
    assert rg2_value_and_gradient(rows, *tables(3, 2).values())[0] == 0
    assert flatten(run(tables, unchanged, rows, 1.0)[-1].params).norm() < 1e-6


@pytest.mark.parametrize("curvature", CURVATURES)
def test_start_at_the_saddle_yields_nothing(curvature: Any) -> None:
    zero = {name: torch.zeros_like(p) for name, p in tables(9, 7).items()}
    rows = random_rows(1)[0]
    assert list(newton_cg(unchanged, zero, rows, REG, curvature=curvature)) == []
    problem = problem_of(unchanged, zero, rows)
    state = start(problem, flatten(zero))
    after = newton_step(problem, state, curvature, NewtonLimits())
    assert torch.equal(after["params"], state["params"])


@pytest.mark.parametrize("damping", [None, 0.0])
def test_negative_curvature_is_followed_downwards(damping: float | None) -> None:
    """Near the saddle the Hessian is indefinite, with or without damping."""
    params = tables(9, 7, scale=1e-3)
    problem = problem_of(unchanged, params, random_rows(1)[0])
    state = start(problem, flatten(params), damping)
    first = float(state["loss"])
    for _ in range(40):
        before = float(state["loss"])
        state = newton_step(problem, state, hessian_product, NewtonLimits())
        assert float(state["loss"]) <= before
        if float(state["gradient"].norm()) < 1e-7:
            break
    assert float(state["loss"]) < first - 0.5
    assert float(state["gradient"].norm()) < 1e-7


def test_misleading_last_direction_is_not_used() -> None:
    """Far along it the Hessian's quadratic is low, though the loss rises from the start."""
    params = tables(9, 7, scale=0.05)
    problem = problem_of(unchanged, params, random_rows(1)[0])
    state = start(problem, flatten(params), damping=0.0)
    eye = torch.eye(len(state["params"]), dtype=torch.float64)
    matrix = torch.stack([hessian_product(problem, state["params"])(row) for row in eye])
    values, vectors = torch.linalg.eigh(matrix)
    assert values[0] < -REG
    uphill = vectors[:, 0] * torch.sign(state["gradient"] @ vectors[:, 0])
    for guess in (uphill, 100 * uphill, 100 * state["gradient"]):
        for curvature in CURVATURES:
            after = newton_step(
                problem, {**state, "direction": guess}, curvature, NewtonLimits(steps=1)
            )
            assert after["loss"] < state["loss"]
            assert state["gradient"] @ after["direction"] < 0


def test_singular_matrix_is_damped() -> None:
    """The same table twice and no regulariser: many parameters give the same vectors."""
    params = {**tables(9, 7), "again": random(9, 9, 3)}

    def encode(p: Params) -> Vectors:
        return p["p"] + p["again"], p["q"]

    *_, last = newton_cg(encode, params, random_rows(1)[0], 0.0, steps=30)
    moved = last.params["p"] - params["p"], last.params["again"] - params["again"]
    torch.testing.assert_close(*moved)
    assert last.gradient_norm < 1e-2


def test_start_with_nan_is_refused() -> None:
    params = tables(9, 7)
    params["p"][1, 0] = torch.nan
    with pytest.raises(UserError, match="loss at the start must be a finite number, got nan"):
        next(newton_cg(unchanged, params, random_rows(1)[0], REG))


class Largest(TorchDispatchMode):
    """The number of entries of the largest dense tensor made."""

    entries = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else [made]:
            if isinstance(tensor, Tensor) and tensor.layout == torch.strided:
                self.entries = max(self.entries, tensor.numel())
        return made


@pytest.mark.parametrize("curvature", CURVATURES)
def test_no_tensor_is_queries_by_candidates(curvature: Any) -> None:
    rows = random_rows(1, 90, 80)[0]
    rows = from_pairs(*(t[::9] for t in (rows.query_of_pair(), rows.candidates)), None, (90, 80))
    with Largest() as largest:
        list(newton_cg(unchanged, tables(90, 80), rows, REG, steps=2, curvature=curvature))
    assert (90 + 80) * 3 <= largest.entries < 90 * 80 / 4
