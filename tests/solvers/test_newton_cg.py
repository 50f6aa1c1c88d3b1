"""Newton-CG has the documented loss, gradient and curvature, and reaches the exact minimum."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from dense import random_rows
from torch import Tensor
from torch.func import jacrev
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
    unflatten,
)
from rankfold.solvers.ranking_loss import (
    RG2,
    LossForm,
    RankingLoss,
    Vectors,
    gauss_newton_product,
    hessian_product,
    loss_and_gradient,
    loss_at,
    rg2_value_and_gradient,
)
from rankfold.types import Interactions, from_pairs

REG = 3e-3
EXACT = NewtonLimits(steps=200, residual=1e-12, progress=0.0)
CURVATURES = [gauss_newton_product, hessian_product]


def random(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dense_value(dense: Tensor, queries: Tensor, candidates: Tensor, form: LossForm = RG2) -> Tensor:
    """The loss by its definition, pair by pair, without the regulariser."""
    scores, n = queries @ candidates.T, dense.shape[1]
    total = torch.zeros((), dtype=torch.float64)
    for x, y in dense.nonzero():
        total = total - scores[x, y] + ((scores[x] + 1) ** 2).sum() / (2 * n)
        total = total + form.alpha * (scores[x, y] - 1) ** 2
        if form.name == "rgx":
            total = total - scores[x].sum() ** 2 / (2 * n**2)
    return total / dense.sum().clamp(min=1)


def tables(m: int, n: int, width: int = 3, scale: float = 1.0) -> Params:
    return {"p": scale * random(1, m, width), "q": scale * random(2, n, width)}


def unchanged(params: Params) -> Vectors:
    return params["p"], params["q"]


def mlp(m: int, n: int, width: int = 3) -> Params:
    return {
        "p": random(3, m, 4) / 2,
        "q": random(4, n, 4) / 2,
        "inner": random(5, 6, 4) / 2,
        "bias": random(6, 6) / 4,
        "outer": random(7, width, 6) / 2,
    }


def through_mlp(params: Params) -> Vectors:
    def tower(x: Tensor) -> Tensor:
        return torch.tanh(x @ params["inner"].T + params["bias"]) @ params["outer"].T

    return tower(params["p"]), tower(params["q"])


ENCODERS = [(tables, unchanged), (mlp, through_mlp)]
FORMS = [RG2, LossForm("rgx"), LossForm(alpha=0.3), LossForm("rgx", alpha=0.3)]
each_form = pytest.mark.parametrize("form", FORMS, ids=str)


def problem_of(
    encode: Callable[[Params], Vectors],
    params: Params,
    rows: Interactions,
    reg: float = REG,
    form: LossForm = RG2,
) -> RankingLoss:
    return RankingLoss(lambda v: encode(unflatten(v, params)), rows, rows.transpose(), reg, form)


def hessian(function: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """Reverse over reverse: forward mode warns of torch.jit on its first use."""
    matrix: Tensor = jacrev(jacrev(function))(at)
    return matrix


def planted(m: int = 60, n: int = 50, groups: int = 4) -> Interactions:
    """Queries mostly choose candidates of their own group."""
    rng = torch.Generator().manual_seed(8)
    of_query = torch.randint(groups, (m, 1), generator=rng)
    of_candidate = torch.randint(groups, (n,), generator=rng)
    chance = torch.where(of_query == of_candidate, 0.4, 0.02)
    x, y = (torch.rand(m, n, generator=rng) < chance).nonzero().T
    return from_pairs(x, y, None, (m, n))


# ------------------------------------------------------------------------ value and products


@pytest.mark.parametrize("shape", [(9, 7), (5, 12), (2, 1)])
def test_value_and_gradient_are_the_definitions(shape: tuple[int, int]) -> None:
    rows, dense = random_rows(shape[1], *shape)
    queries, candidates = tables(*shape).values()
    value, *gradients = rg2_value_and_gradient(rows, queries, candidates)
    torch.testing.assert_close(value, dense_value(dense, queries, candidates))
    expected = torch.func.grad(lambda pair: dense_value(dense, *pair))((queries, candidates))
    torch.testing.assert_close(tuple(gradients), expected)


def test_float32_is_near_float64() -> None:
    rows = planted()
    exact = rg2_value_and_gradient(rows, *tables(60, 50).values())
    iterates = rg2_value_and_gradient(rows, *(t.float() for t in tables(60, 50).values()))
    assert iterates[0].dtype == torch.float64
    assert iterates[0].item() == pytest.approx(exact[0].item(), rel=1e-6)
    for a, b in zip(iterates[1:], exact[1:], strict=True):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-6)


@each_form
@pytest.mark.parametrize(("make", "encode"), ENCODERS)
def test_loss_and_gradient_go_through_the_encoder(make: Any, encode: Any, form: LossForm) -> None:
    rows, dense = random_rows(1)
    params = make(9, 7)
    problem, at = problem_of(encode, params, rows, form=form), flatten(params)

    def naive(vector: Tensor) -> Tensor:
        return dense_value(dense, *problem.encode(vector), form) + REG / 2 * (vector**2).sum()

    loss, gradient = loss_and_gradient(problem, at)
    torch.testing.assert_close(loss, naive(at))
    torch.testing.assert_close(gradient, torch.func.grad(naive)(at))
    assert loss_at(problem, at) == pytest.approx(loss.item(), rel=1e-12)


@each_form
@pytest.mark.parametrize(("make", "encode"), ENCODERS)
def test_gauss_newton_product_is_the_explicit_matrix(
    make: Any, encode: Any, form: LossForm
) -> None:
    """The Hessian by the scores is that of the definition."""
    rows, dense = random_rows(2, 5, 4)
    params = make(5, 4, 2)
    problem, at = problem_of(encode, params, rows, form=form), flatten(params)

    def scores(vector: Tensor) -> Tensor:
        queries, candidates = problem.encode(vector)
        return (queries @ candidates.T).flatten()

    jacobian = jacrev(scores)(at)
    eye = torch.eye(4, dtype=torch.float64)
    of_scores = hessian(lambda o: dense_value(dense, o.view(5, 4), eye, form), scores(at))
    matrix = jacobian.T @ of_scores @ jacobian
    product = gauss_newton_product(problem, at)
    for seed in range(3):
        vector = random(seed, len(at))
        torch.testing.assert_close(product(vector), matrix @ vector)


@each_form
@pytest.mark.parametrize(("make", "encode"), ENCODERS)
def test_hessian_product_is_the_explicit_matrix(make: Any, encode: Any, form: LossForm) -> None:
    rows, dense = random_rows(2, 5, 4)
    params = make(5, 4, 2)
    problem, at = problem_of(encode, params, rows, form=form), flatten(params)
    matrix = hessian(lambda vector: dense_value(dense, *problem.encode(vector), form), at)
    vector = random(9, len(at))
    torch.testing.assert_close(hessian_product(problem, at)(vector), matrix @ vector)


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
    make: Any, encode: Any, rows: Interactions, reg: float = REG, **options: Any
) -> list[Iterate]:
    params = make(rows.n_queries, rows.n_candidates)
    return list(newton_cg(encode, params, rows, reg, **options))


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
