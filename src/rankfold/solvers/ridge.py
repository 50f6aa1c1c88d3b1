"""Rows of scores of a regularised Gram matrix without the matrix, by conjugate gradients.

With G = diag(s) R^T diag(w) R diag(s) and shifts t > 0 the columns Z of (G + diag(t)) Z = B cost a
few products with R for each column, where the inverse costs N^3.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from rankfold.kernels.sparse import row_sums
from rankfold.solvers.gram import tiles
from rankfold.solvers.progress import Work
from rankfold.types import Interactions

TOLERANCE = 3e-3  # of a column's residual, relative
EXACT = 1e-5  # the same, for an inverse
_MOST_STEPS = 200
_COLUMNS = 64  # of an inverse at a time, at most: more leave the cache
_NUMBERS = 8  # held for each entry of a block of columns


@dataclass(frozen=True)
class Gram:
    """G of some pairs, as a product."""

    rows: Interactions  # R, [M, N]; its grades are not used
    columns: Interactions  # R^T
    weight: Tensor  # w, [M]
    scale: Tensor  # s, [N]

    def product(self, block: Tensor) -> Tensor:
        """G ``block``; [N, B]."""
        scale = self.scale[:, None]
        image = row_sums(self.rows, scale * block).mul_(self.weight[:, None])
        return row_sums(self.columns, image).mul_(scale)

    @cached_property
    def diagonal(self) -> Tensor:
        """The diagonal of G; [N]."""
        sums = row_sums(self.columns, self.weight[:, None])[:, 0]
        return sums * self.scale**2


def solve(gram: Gram, shift: Tensor, block: Tensor, tolerance: float = TOLERANCE) -> Tensor:
    """(G + diag(shift))^-1 ``block``, to a relative residual per column; [N, B].

    Preconditioned by the diagonal. ``shift`` [N] is above 0.
    """
    precondition = (1 / (gram.diagonal + shift))[:, None]
    result, residual = torch.zeros_like(block), block.clone()
    direction = precondition * residual
    size = (residual * direction).sum(dim=0)
    enough = tolerance**2 * residual.square().sum(dim=0)
    for _ in range(_MOST_STEPS):
        if bool((residual.square().sum(dim=0) <= enough).all()):
            break
        image = gram.product(direction).addcmul_(shift[:, None], direction)
        step = size / (direction * image).sum(dim=0).clamp(min=1e-30)
        result.addcmul_(direction, step)
        residual.addcmul_(image, step, value=-1)
        scaled = precondition * residual
        before, size = size, (residual * scaled).sum(dim=0)
        direction.mul_(size / before.clamp(min=1e-30)).add_(scaled)
    return result


def inverse(gram: Gram, shift: Tensor, memory_budget: int) -> Work[Tensor]:
    """(G + diag(shift))^-1, some columns at a time; [N, N]."""
    n = len(shift)
    result = shift.new_empty(n, n)
    width = memory_budget // (4 * (_NUMBERS * n + gram.rows.n_queries))
    for start, stop in tiles(n, max(1, min(_COLUMNS, width))):
        block = shift.new_zeros(n, stop - start)
        block[start:stop].fill_diagonal_(1.0)
        result[start:stop] = solve(gram, shift, block, EXACT).T
        yield stop / n
    return result


def inverse_diagonal(gram: Gram, shift: Tensor, n_probes: int, rng: torch.Generator) -> Tensor:
    """An estimate of the diagonal of (G + diag(shift))^-1, within its exact bounds; [N].

    The mean of z * (G + diag(shift))^-1 z over random signs z. An entry lies between 1 / (G_jj +
    shift_j) and 1 / shift_j.
    """
    signs = torch.randint(0, 2, (len(shift), n_probes), generator=rng).to(shift) * 2 - 1
    estimate = (signs * solve(gram, shift, signs)).mean(dim=1)
    return estimate.maximum(1 / (gram.diagonal + shift)).minimum(1 / shift)
