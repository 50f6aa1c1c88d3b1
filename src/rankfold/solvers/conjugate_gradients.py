"""Conjugate gradients: for all rows of a block at once, or for one system of all rows."""

from collections.abc import Callable

import torch
from torch import Tensor

from rankfold.solvers.least_squares import Solve, System, inverse, materialised, scaled
from rankfold.solvers.pairs import runs


def by_conjugate_gradients(steps: int) -> Solve:
    """Solve every row at once, preconditioned by an approximate diagonal of its system.

    The pairs of a row are taken to add their number times the mean square to the diagonal.
    """

    def solve(system: System, start: Tensor | None = None, relaxation: float = 1.0) -> Tensor:
        sizes = system.extra * system.pairs.counts().to(system.others.dtype)[:, None]
        common = None if system.common == 0 else system.common * system.whole**2

        def inverted(some: slice) -> Tensor:
            diagonal = system.diagonal(some)
            diagonal = torch.addcmul(diagonal, sizes[some], system.square)
            return inverse(diagonal if common is None else diagonal + common)

        scale = materialised(inverted, len(sizes), system.square)
        if start is None:
            residual = system.right()
            x = torch.zeros_like(residual)
        else:  # unbounded components stay at 0
            x = start
            for some in runs(x):
                factors = scale(some)
                if factors.numel() == 0 or float(factors.amin()) <= 0:  # hardly ever
                    x[some].masked_fill_(factors == 0, 0.0)
            residual = system.residual(x)
        return conjugate_gradients(
            system.product,
            residual,
            x,
            lambda rest, out: scaled(rest, scale, out),
            lambda x, y: torch.linalg.vecdot(x, y)[:, None],
            steps,
            relaxation,
            ends_early=system.pairs.is_local,
        )

    return solve


def conjugate_gradients(
    product: Callable[[Tensor], Tensor],
    residual: Tensor,
    x: Tensor,
    precondition: Callable[[Tensor, Tensor], Tensor],
    dot: Callable[[Tensor, Tensor], Tensor],
    steps: int,
    relaxation: float = 1.0,
    *,
    ends_early: bool = False,
) -> Tensor:
    """Steps from ``x`` towards the solution, for a positive definite product.

    If ``dot`` works row by row, every row is a separate system. A direction along which the product
    vanishes is not taken, and none is once the residual is rounding. ``x`` and ``residual`` (the
    right side less the product of x) are overwritten. ``precondition`` writes to its second
    argument, so that four tables of the size of x are in memory. ``relaxation``: how far x goes in
    the end, relative to the way to the solution. ``ends_early``: steps that take no direction are
    left out. Processes that sum their products must do so equally often.
    """
    direction = precondition(residual, torch.empty_like(residual))
    size = dot(residual, direction)
    rounding = size * torch.finfo(x.dtype).eps ** 2
    for step in range(1, steps + 1):
        moved = product(direction)
        along = dot(direction, moved)
        length = torch.where((along > 0) & (size > rounding), size / along, 0.0)
        x.addcmul_(length, direction, value=relaxation)
        if step == steps:
            break
        residual.addcmul_(length, moved, value=-1)
        conditioned = precondition(residual, moved)
        before, size = size, dot(residual, conditioned)
        if ends_early and bool((size <= rounding).all()):
            break
        direction = conditioned.addcmul_(torch.where(before > 0, size / before, 0.0), direction)
    return x
