"""Newton's method by conjugate gradients, for RG2 and RGx on the vectors of any encoder.

The loss and its products are in ``ranking_loss``. A step models the loss as quadratic, with one of
two curvature matrices. The Gauss-Newton matrix is positive semi-definite but ignores the curvature
of the scores themselves, so convergence near the minimum is only linear. The Hessian may be
indefinite far from the minimum, but converges faster near it. On tables of 200 and 150 rows it took
17 steps, where the Gauss-Newton matrix had not converged after 80. On a small MLP it was slower.
Both use the same state: a run may switch between them.

Where both factors are 0 the gradient is 0, but that is a saddle point: do not start there.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.errors import UserError
from rankfold.solvers.ranking_loss import (
    RG2,
    LossForm,
    Product,
    RankingLoss,
    Vectors,
    dot,
    gauss_newton_product,
    loss_and_gradient,
    loss_at,
)
from rankfold.types import Interactions

Params = dict[str, Tensor]
State = dict[str, Tensor]
"""``params``, ``gradient`` and last ``direction`` [n], ``loss``, ``damping``: enough to resume."""

_ARMIJO = 1e-4  # share of the decrease predicted by the slope that a step must reach
_MAX_HALVINGS = 30  # of a step; beyond, rounding hides any decrease
_POOR_RATIO, _GOOD_RATIO = 0.25, 0.75  # actual / predicted decrease: damp more below, less above
_DAMPING_FACTOR = 3.0


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


def newton_cg(
    encode: Callable[[Params], Vectors],
    params: Params,
    rows: Interactions,
    reg: float,
    *,
    form: LossForm = RG2,
    steps: int = 100,
    curvature: Curvature | None = None,
    limits: NewtonLimits | None = None,
    state: State | None = None,
) -> Iterator[Iterate]:
    """Descend until the gradient is 0 or rounding hides progress.

    Yields nothing if the gradient is 0 at the start.

    Args:
        encode: the vectors of all queries and of all candidates, for torch.func.
        params: where to start, all of one dtype; they are not written to.
        rows: R, [M, N].
        reg: of the plain regulariser.
        form: RG2 or RGx, and the extra weight of a pair.
        steps: the largest number of steps.
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
        if not bool(state["gradient"].any()):
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
        damping = dot(gradient, curved) / max(dot(gradient, gradient), 1e-300) + problem.reg
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
    slope = dot(gradient, direction)
    bend = -slope - dot(residual, direction) - damping * dot(direction, direction)
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
    if dot(gradient, direction) < 0:
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
    values = [dot(gradient - residual, x) / 2]  # of the quadratic gradient . x + x . B x / 2
    if not values[0] < 0:
        x, residual, values = torch.zeros_like(x), -gradient, [0.0]
    direction, size = residual.clone(), dot(residual, residual)
    enough = limits.residual**2 * dot(gradient, gradient)
    for step in range(1, limits.steps + 1):
        if size <= enough:
            break
        moved = product(direction)
        along = dot(direction, moved)
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
        before, size = size, dot(residual, residual)
        direction.mul_(size / before).add_(residual)
    return x, residual
