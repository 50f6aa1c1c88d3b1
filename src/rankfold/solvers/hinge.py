"""Linear classifiers of many labels by the squared hinge loss, over sparse rows.

A label has a weight w_j for each column and a bias b. With t_i = 1 for its rows and -1 for all
others, it minimises::

    f(w, b) = |w|^2 / 2 + b^2 / 2 + cost sum_i [1 - t_i s_i]_+^2,    s_i = w . x_i + b

At the minimum w = sum_i a_i x_i and b = sum_i a_i, with a_i = 2 cost t_i [1 - t_i s_i]_+. So a
label is one number per row, and Newton's method needs products with the Gram matrix alone. It works
on the rows inside the margin, by conjugate gradients, for all labels of a block at once.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.kernels.sparse import row_sums
from rankfold.types import Interactions

_PARTS_OF_A_STEP = (1.0, 0.5, 0.25, 0.1)
_SMALLEST_GAIN = 1e-3  # of a step, relative to the loss: less ends the search
_RESIDUAL = 0.1  # of conjugate gradients, relative


class Limits(NamedTuple):
    """When the search ends."""

    steps: int = 8  # of Newton's method
    products: int = 10  # of conjugate gradients, in each step
    gain: float = _SMALLEST_GAIN
    residual: float = _RESIDUAL


class SparseRows(NamedTuple):
    """Rows X [M, V] of a problem. Columns of one row only are left to ``own``."""

    rows: Interactions  # [M, V]
    columns: Interactions  # the transpose
    own: Tensor  # [M], squares of the values in columns that no other row has
    names: Tensor  # [V] ascending, what the columns are called outside

    def product(self, block: Tensor) -> Tensor:
        """(X X^T + 1) ``block``, the Gram matrix of all rows with a column of ones; [M, B]."""
        image = row_sums(self.rows, self.weights(block), self.rows.grades)
        return image.addcmul_(self.own[:, None], block).add_(block.sum(dim=0))

    def weights(self, block: Tensor) -> Tensor:
        """The weights w = X^T ``block``; [V, B]."""
        return row_sums(self.columns, block, self.columns.grades)


def sparse_rows(rows: Interactions) -> SparseRows:
    """Some rows as a problem; ``rows`` may have columns that are empty here."""
    assert rows.grades is not None
    names, places, counts = rows.candidates.unique(return_inverse=True, return_counts=True)
    shared = counts > 1
    kept = shared[places]
    own = rows.grades.new_zeros(rows.n_queries)
    own.index_add_(0, rows.query_of_pair()[~kept].long(), rows.grades[~kept].square())
    numbers = (shared.cumsum(0) - 1)[places].to(rows.candidates.dtype)
    compact = Interactions(rows.offsets, numbers, rows.grades, int(shared.sum())).keep(kept)
    return SparseRows(compact, compact.transpose(), own, names[shared].long())


def squared_hinge(
    rows: SparseRows,
    signs: Tensor,
    cost: float,
    start: Tensor | None = None,
    limits: Limits = Limits(),  # noqa: B008, it is immutable
) -> Tensor:
    """The coefficients a of each label of a block; [M, B].

    ``signs`` [M, B] are t, and 0 for a row that a label ignores; ``start`` [M, B] are coefficients
    of an earlier search. A step of Newton's method solves, for the rows I inside the margin::

        (K_II + 1 / (2 cost)) a_I = t_I,    a = 0 elsewhere

    and goes from the old coefficients to these as far as f falls most.
    """
    a = torch.zeros_like(signs) if start is None else start
    scores = torch.zeros_like(signs) if start is None else rows.product(a)
    loss = _loss(a, scores, signs, cost)
    for _ in range(limits.steps):
        inside = (signs * scores < 1).to(signs.dtype).mul_(signs.abs())
        target = _newton_point(rows, signs, inside, a * inside, cost, limits)
        change, of_scores = target - a, rows.product(target).sub_(scores)
        parts, best = torch.zeros_like(loss), loss
        for part in _PARTS_OF_A_STEP:
            there = _loss(a + part * change, scores + part * of_scores, signs, cost)
            parts = torch.where(there < best, part, parts)
            best = torch.minimum(best, there)
        a.addcmul_(change, parts)
        scores.addcmul_(of_scores, parts)
        gain = ((loss - best) / loss.clamp(min=1e-30)).max() if len(loss) else 0.0
        loss = best
        if float(gain) < limits.gain:
            break
    return a


def _newton_point(
    rows: SparseRows, signs: Tensor, inside: Tensor, a: Tensor, cost: float, limits: Limits
) -> Tensor:
    """About the solution of a step's system by conjugate gradients from ``a``; [M, B]."""
    ridge = 1 / (2 * cost)
    rest = (signs - rows.product(a)).mul_(inside).sub_(a, alpha=ridge)
    direction, square = rest.clone(), rest.square().sum(dim=0)
    enough = limits.residual**2 * square
    for _ in range(limits.products):
        image = rows.product(direction).mul_(inside).add_(direction, alpha=ridge)
        length = square / (direction * image).sum(dim=0).clamp(min=1e-30)
        a = a.addcmul_(direction, length)
        rest.addcmul_(image, -length)
        before, square = square, rest.square().sum(dim=0)
        if bool((square <= enough).all()):
            break
        direction.mul_(square / before.clamp(min=1e-30)).add_(rest)
    return a


def _loss(a: Tensor, scores: Tensor, signs: Tensor, cost: float) -> Tensor:
    """The value f of each label; |w|^2 + b^2 is the product of a and the scores; [B]."""
    short = (signs.abs() - signs * scores).clamp_(min=0)
    return 0.5 * (a * scores).sum(dim=0) + cost * short.square_().sum(dim=0)
