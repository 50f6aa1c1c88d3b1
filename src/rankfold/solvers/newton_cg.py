"""Newton's method by conjugate gradients, for RG2 and RGx on the vectors of any encoder.

With P [M, D] and Q [N, D] the vectors of the encoder, the loss is::

    ( sum_{(x, y) in R} -P_x . Q_y + 1/(2N) sum_x |I_x| sum_y (P_x . Q_y + 1)^2 ) / |R|
    + reg/2 |params|^2

RGx is RG2 of the scores less their mean over all candidates, so of the candidates less theirs. The
weighted forms add alpha sum_{(x, y) in R} (P_x . Q_y - 1)^2 / |R|, of the scores as they are.

No product needs the M x N scores: Gram matrices replace them. A step models the loss as quadratic,
with one of two curvature matrices. The Gauss-Newton matrix is positive semi-definite but ignores
the curvature of the scores themselves, so convergence near the minimum is only linear. The Hessian
may be indefinite far from the minimum, but converges faster near it. On tables of 200 and 150 rows
it took 17 steps, where the Gauss-Newton matrix had not converged after 80. On a small MLP it was
slower. Both use the same state: a run may switch between them.

The regulariser is plain. The loss is a mean over pairs, so a row of a table has about 1/M or 1/N of
its weight; choose ``reg`` on that scale.

Where both factors are 0 the gradient is 0, but that is a saddle point: do not start there.
"""

import warnings
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.func import jvp, vjp

from rankfold.errors import UserError
from rankfold.kernels.sparse import pair_products, row_sums
from rankfold.types import Interactions

Params = dict[str, Tensor]
Vectors = tuple[Tensor, Tensor]  # of all queries [M, D], of all candidates [N, D]
State = dict[str, Tensor]
"""``params``, ``gradient`` and last ``direction`` [n], ``loss``, ``damping``: enough to resume."""

_ROW_BLOCK = 2**14  # rows summed in float64 at a time
_ARMIJO = 1e-4  # share of the decrease predicted by the slope that a step must reach
_MAX_HALVINGS = 30  # of a step; beyond, rounding hides any decrease
_POOR_RATIO, _GOOD_RATIO = 0.25, 0.75  # actual / predicted decrease: damp more below, less above
_DAMPING_FACTOR = 3.0


class LossForm(NamedTuple):
    """RG2 or RGx, and the extra weight of a pair."""

    name: Literal["rg2", "rgx"] = "rg2"
    alpha: float = 0.0


RG2 = LossForm()


class RankingLoss(NamedTuple):
    """The loss to minimise."""

    encode: Callable[[Tensor], Vectors]  # of all parameters as one vector
    rows: Interactions  # its grades are not used
    columns: Interactions  # ``rows`` transposed
    reg: float
    form: LossForm = RG2


Product = Callable[[Tensor], Tensor]
Curvature = Callable[[RankingLoss, Tensor], Product]
"""The product of the curvature at some parameters, without the regulariser, with a vector."""


class NewtonLimits(NamedTuple):
    """When conjugate gradients stop."""

    steps: int = 100
    residual: float = 1e-4  # relative to the gradient
    progress: float = 5e-4  # per step, relative to all so far; Martens (2010), section 4.4


class Iterate(NamedTuple):
    """The result of a step."""

    params: Params
    loss: float
    gradient_norm: float
    state: State


def newton_cg(  # noqa: PLR0913
    encode: Callable[[Params], Vectors],
    params: Params,
    rows: Interactions,
    reg: float,
    *,
    form: LossForm = RG2,
    steps: int = 100,
    tolerance: float = 0.0,
    curvature: Curvature | None = None,
    limits: NewtonLimits | None = None,
    state: State | None = None,
) -> Iterator[Iterate]:
    """Descend until the norm of the gradient is ``tolerance`` or rounding hides progress.

    Yields nothing if the gradient is that small at the start.

    Args:
        encode: the vectors of all queries and of all candidates, for torch.func.
        params: where to start, all of one dtype; they are not written to.
        rows: R, [M, N].
        reg: of the plain regulariser.
        form: RG2 or RGx, and the extra weight of a pair.
        steps: the largest number of steps.
        tolerance: the norm of the gradient at which to stop.
        curvature: ``hessian_product``; None: ``gauss_newton_product``.
        limits: of the conjugate gradients in a step.
        state: that of an iterate, to resume after it.
    """

    def flat(vector: Tensor) -> Vectors:
        return encode(unflatten(vector, params))

    problem = RankingLoss(flat, rows, rows.transpose(), reg, form)
    state = start(problem, flatten(params)) if state is None else state
    curvature, limits = curvature or gauss_newton_product, limits or NewtonLimits()
    for _ in range(steps):
        if float(state["gradient"].norm()) <= tolerance:
            return
        before, state = state["loss"], newton_step(problem, state, curvature, limits)
        if not bool(state["loss"] < before):
            return
        norm = float(state["gradient"].norm())
        yield Iterate(unflatten(state["params"], params), float(state["loss"]), norm, state)


def flatten(params: Params) -> Tensor:
    """All parameters as one vector, a copy."""
    return torch.cat([p.detach().flatten() for p in params.values()])


def unflatten(vector: Tensor, like: Params) -> Params:
    """The parameters as views of one vector, with the names and shapes of ``like``."""
    parts = vector.split([p.numel() for p in like.values()])
    return {name: part.view(p.shape) for (name, p), part in zip(like.items(), parts, strict=True)}


@torch.no_grad()
def start(problem: RankingLoss, params: Tensor, damping: float | None = None) -> State:
    """The state before the first step.

    Default of ``damping``: the curvature along the gradient. Steps multiply it, so 0 stays 0.
    """
    loss, gradient = loss_and_gradient(problem, params)
    if not bool(loss.isfinite()):
        raise UserError(
            f"the loss at the start must be a finite number, got {float(loss)}",
            hint="check the starting parameters for huge values and NaN",
        )
    if damping is None:
        curved = gauss_newton_product(problem, params)(gradient)
        damping = _dot(gradient, curved) / max(_dot(gradient, gradient), 1e-300) + problem.reg
    return {
        "params": params,
        "gradient": gradient,
        "direction": torch.zeros_like(params),
        "loss": loss,
        "damping": torch.tensor(damping, dtype=torch.float64),
    }


@torch.no_grad()
def newton_step(
    problem: RankingLoss, state: State, curvature: Curvature, limits: NewtonLimits
) -> State:
    """A damped Newton step, halved until the loss falls. Stays if no length makes it fall.

    The direction d solves (B + (reg + damping) I) d = -gradient, B the curvature. The next damping
    depends on how well the quadratic without damping predicts the loss of the full step.
    """
    params, gradient, loss = state["params"], state["gradient"], float(state["loss"])
    if not bool(gradient.any()):
        return state
    damping = float(state["damping"])
    direction, residual = _direction(problem, state, curvature(problem, params), limits)
    slope = _dot(gradient, direction)
    bend = -slope - _dot(residual, direction) - damping * _dot(direction, direction)
    length, value = 1.0, loss_at(problem, params + direction)
    ratio = (value - loss) / (slope + bend / 2)
    while not value <= loss + _ARMIJO * length * slope:
        length /= 2
        if length < 0.5**_MAX_HALVINGS:
            return {**state, "damping": state["damping"] * _DAMPING_FACTOR}
        value = loss_at(problem, params + length * direction)
    moved = params + length * direction
    after, gradient = loss_and_gradient(problem, moved)
    factor = 1.0 if ratio >= _POOR_RATIO else _DAMPING_FACTOR
    factor = 1 / _DAMPING_FACTOR if ratio > _GOOD_RATIO else factor
    scalars = {"loss": after, "damping": state["damping"] * factor}
    return {"params": moved, "gradient": gradient, "direction": direction, **scalars}


def _direction(
    problem: RankingLoss, state: State, curved: Product, limits: NewtonLimits
) -> tuple[Tensor, Tensor]:
    """A descent direction and its residual."""
    gradient, shift = state["gradient"], problem.reg + float(state["damping"])

    def product(vector: Tensor) -> Tensor:
        return torch.add(curved(vector), vector, alpha=shift)

    direction, residual = _solve(product, gradient, state["direction"], limits)
    if _dot(gradient, direction) < 0:
        return direction, residual
    return _solve(product, gradient, torch.zeros_like(gradient), limits)  # this always descends


def _solve(
    product: Product, gradient: Tensor, guess: Tensor, limits: NewtonLimits
) -> tuple[Tensor, Tensor]:
    """Conjugate gradients for B x = -gradient from ``guess``, or from 0 where that is better.

    They end at a direction of zero or negative curvature. It is taken only if it is the first, the
    gradient itself. Returns x and the residual -gradient - B x.
    """
    x, residual = guess.clone(), -gradient - product(guess)
    values = [_dot(gradient - residual, x) / 2]  # of the quadratic gradient . x + x . B x / 2
    if not values[0] < 0:
        x, residual, values = torch.zeros_like(x), -gradient, [0.0]
    direction, size = residual.clone(), _dot(residual, residual)
    enough = limits.residual**2 * _dot(gradient, gradient)
    for step in range(1, limits.steps + 1):
        if size <= enough:
            break
        moved = product(direction)
        along = _dot(direction, moved)
        if along <= 0 and values[-1] < 0:
            break
        length = size / abs(along) if along != 0 else 1.0
        x.add_(direction, alpha=length)
        residual.sub_(moved, alpha=length)
        values.append(values[-1] - length * size + length**2 * along / 2)
        back = max(10, step // 10)
        slow = step > back and values[-1] - values[-1 - back] > back * limits.progress * values[-1]
        if slow or along <= 0:
            break
        before, size = size, _dot(residual, residual)
        direction.mul_(size / before).add_(residual)
    return x, residual


def gauss_newton_product(problem: RankingLoss, params: Tensor) -> Product:
    """The product with J^T H J, J the Jacobian of the scores and H = diag(a) their Hessian.

    For directions P', Q' of the vectors the scores move by P' Q^T + P Q'^T; with
    a_x = |I_x| / (N |R|) and A = diag(a), the gradients with respect to P and Q move by::

        A ( P' (Q^T Q) + P (Q'^T Q) )        Q (P'^T A P) + Q' (P^T A P)

    RGx has centred Q and Q'. The extra weight of a pair adds 2 alpha / |R| to its entry of H.
    """
    vectors, pull = _encoded(problem, params)
    (queries, candidates), rows = _seen(problem, vectors), problem.rows
    scale = 1 / (rows.n_candidates * max(rows.n_pairs, 1))
    weights = rows.counts().to(queries.dtype)[:, None] * scale
    weighted = weights * queries
    of_candidates, of_queries = candidates.T @ candidates, queries.T @ weighted

    def product(vector: Tensor) -> Tensor:
        moved = _pushed(problem.encode, params, vector)
        p, q = _seen(problem, moved)
        for_queries = weights * (p @ of_candidates) + weighted @ (q.T @ candidates)
        for_candidates = candidates @ (p.T @ weighted) + q @ of_queries
        total = _seen(problem, (for_queries, for_candidates))
        return pull(_plus(total, _extra_gauss_newton(problem, vectors, moved)))

    return product


def hessian_product(problem: RankingLoss, params: Tensor) -> Product:
    """The product with the Hessian of the loss on the encoder's vectors.

    It is the derivative of the gradient: through the gradients by P and Q, differentiated here by
    hand, and through the encoder's Jacobian, forward over reverse.
    """
    vectors, pull = _encoded(problem, params)
    queries, candidates = _seen(problem, vectors)
    rows, columns, n = problem.rows, problem.columns, problem.rows.n_candidates
    slopes = _value_and_gradient(problem, vectors)[1]
    errors = _pair_errors(problem, vectors)
    sizes, scale = rows.counts().to(queries.dtype)[:, None], 1 / max(rows.n_pairs, 1)
    weighted = sizes * queries
    of_candidates, of_queries = candidates.T @ candidates, queries.T @ weighted

    def gradient(at: Tensor) -> Tensor:
        return _encoded(problem, at)[1](slopes)

    def product(vector: Tensor) -> Tensor:
        moved = _pushed(problem.encode, params, vector)
        p, q = _seen(problem, moved)
        cross_q, cross_p = q.T @ candidates, p.T @ weighted
        by_queries = p @ of_candidates + queries @ (cross_q + cross_q.T) + q.sum(dim=0)
        by_queries = sizes / n * by_queries - row_sums(rows, q)
        by_candidates = q @ of_queries + candidates @ (cross_p + cross_p.T) + (sizes * p).sum(dim=0)
        by_candidates = by_candidates / n - row_sums(columns, p)
        total = _seen(problem, (scale * by_queries, scale * by_candidates))
        total = _plus(total, _extra_gauss_newton(problem, vectors, moved))
        total = _plus(total, _extra(problem, errors, moved))
        by_encoder: Tensor = _pushed(gradient, params, vector)
        return by_encoder + pull(total)

    return product


def loss_and_gradient(problem: RankingLoss, params: Tensor) -> tuple[Tensor, Tensor]:
    """The loss [] and its gradient [n]."""
    vectors, pull = _encoded(problem, params)
    value, slopes = _value_and_gradient(problem, vectors)
    gradient = pull(slopes) + problem.reg * params
    return value + problem.reg / 2 * _dot(params, params), gradient


def _encoded(problem: RankingLoss, params: Tensor) -> tuple[Vectors, Callable[[Vectors], Tensor]]:
    """The vectors, and a function from gradients by them to the gradient by the parameters."""
    encoded = vjp(problem.encode, params)
    return encoded[0], lambda slopes: encoded[1](slopes)[0]


def _pushed(function: Callable[[Tensor], Any], at: Tensor, direction: Tensor) -> Any:
    """The derivative of the function along the direction."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*torch.jit")  # raised by torch on first use
        return jvp(function, (at,), (direction,))[1]


def loss_at(problem: RankingLoss, params: Tensor) -> float:
    """The loss alone."""
    vectors = problem.encode(params)
    value = _value(problem.rows, *_seen(problem, vectors))[0] + _extra_value(problem, vectors)
    return float(value + problem.reg / 2 * _dot(params, params))


def _value_and_gradient(problem: RankingLoss, vectors: Vectors) -> tuple[Tensor, Vectors]:
    """The loss without its regulariser, and its gradients by P and by Q."""
    seen = _seen(problem, vectors)
    value, *slopes = rg2_value_and_gradient(problem.rows, *seen, problem.columns)
    total = _seen(problem, (slopes[0], slopes[1]))
    total = _plus(total, _extra(problem, _pair_errors(problem, vectors), vectors))
    return value + _extra_value(problem, vectors), total


def _seen(problem: RankingLoss, vectors: Vectors) -> Vectors:
    """The vectors whose RG2 is the loss: for RGx, candidates less their mean.

    Centring is its own adjoint, so a gradient by centred candidates becomes that by candidates in
    the same way.
    """
    queries, candidates = vectors
    if problem.form.name == "rg2":
        return queries, candidates
    return queries, candidates - candidates.mean(dim=0)


def _pair_scores(problem: RankingLoss, queries: Tensor, candidates: Tensor) -> Vectors:
    """The scores of the pairs, in the order of rows and of columns."""
    of_rows = pair_products(problem.rows, queries, candidates)
    return of_rows, pair_products(problem.columns, candidates, queries)


def _pair_errors(problem: RankingLoss, vectors: Vectors) -> Vectors | None:
    """o_xy - 1 of the pairs, in the order of rows and of columns; None without extra weight."""
    if problem.form.alpha == 0:
        return None
    of_rows, of_columns = _pair_scores(problem, *vectors)
    return of_rows - 1, of_columns - 1


def _extra_value(problem: RankingLoss, vectors: Vectors) -> float:
    """The term of the extra weight: alpha sum_{(x, y) in R} (o_xy - 1)^2 / |R|."""
    if problem.form.alpha == 0:
        return 0.0
    errors = pair_products(problem.rows, *vectors) - 1
    return problem.form.alpha * _dot(errors, errors) / max(problem.rows.n_pairs, 1)


def _extra(problem: RankingLoss, weights: Vectors | None, vectors: Vectors) -> Vectors | None:
    """2 alpha / |R| times the weighted sums of the other side's vectors over the pairs."""
    if weights is None:
        return None
    scale = 2 * problem.form.alpha / max(problem.rows.n_pairs, 1)
    of_rows, of_columns = weights
    by_queries = row_sums(problem.rows, vectors[1], of_rows)
    return scale * by_queries, scale * row_sums(problem.columns, vectors[0], of_columns)


def _extra_gauss_newton(problem: RankingLoss, vectors: Vectors, moved: Vectors) -> Vectors | None:
    """The part of the extra weight in the Gauss-Newton product, for moving the vectors."""
    if problem.form.alpha == 0:
        return None
    one = _pair_scores(problem, moved[0], vectors[1])
    other = _pair_scores(problem, vectors[0], moved[1])
    return _extra(problem, _plus(one, other), vectors)


def _plus(one: Vectors, other: Vectors | None) -> Vectors:
    return one if other is None else (one[0] + other[0], one[1] + other[1])


def rg2_value_and_gradient(
    rows: Interactions, queries: Tensor, candidates: Tensor, columns: Interactions | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """RG2 without its regulariser, a mean over pairs, and its gradients by P and by Q.

    With s = sum_y Q_y, W = diag |I_x| and h = sum_x |I_x| P_x, times |R|::

        by P_x: -sum_{y in I_x} Q_y + |I_x|/N (Q^T Q P_x + s)
        by Q_y: -sum_{x in U_y} P_x + 1/N (P^T W P Q_y + h)

    Args:
        rows: R, [M, N]; without pairs all results are 0.
        queries: P, [M, D].
        candidates: Q, [N, D].
        columns: R transposed; None: computed here.

    Returns:
        the value [] in float64, and gradients [M, D] and [N, D].
    """
    columns = rows.transpose() if columns is None else columns
    value, chosen, sums = _value(rows, queries, candidates)
    n, pairs = rows.n_candidates, max(rows.n_pairs, 1)
    gram, whole, weighted_gram, weighted_whole = (s.to(queries.dtype) for s in sums)
    shares = rows.counts().to(queries.dtype)[:, None] / n
    by_queries = shares * (queries @ gram + whole) - chosen
    by_candidates = (candidates @ weighted_gram + weighted_whole) / n - row_sums(columns, queries)
    return value, by_queries / pairs, by_candidates / pairs


def _value(
    rows: Interactions, queries: Tensor, candidates: Tensor
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor, Tensor]]:
    """The value, R Q, and the sums Q^T Q, s, P^T W P and h; the sums in float64."""
    weighted = rows.counts().to(queries.dtype)[:, None] * queries
    gram, whole = _gram(candidates, candidates), candidates.sum(dim=0, dtype=torch.float64)
    weighted_gram, weighted_whole = _gram(queries, weighted), weighted.sum(0, dtype=torch.float64)
    chosen = row_sums(rows, candidates)
    squares = (gram * weighted_gram).sum() + 2 * whole @ weighted_whole
    total = squares / (2 * rows.n_candidates) - (queries * chosen).sum(dtype=torch.float64)
    value = (total + rows.n_pairs / 2) / max(rows.n_pairs, 1)
    return value, chosen, (gram, whole, weighted_gram, weighted_whole)


def _gram(left: Tensor, right: Tensor) -> Tensor:
    """left^T right in float64; [D, D]."""
    parts = zip(left.split(_ROW_BLOCK), right.split(_ROW_BLOCK), strict=True)
    return torch.stack([a.double().T @ b.double() for a, b in parts]).sum(dim=0)


def _dot(x: Tensor, y: Tensor) -> float:
    return float((x * y).sum(dtype=torch.float64))
