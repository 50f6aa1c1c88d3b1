"""Linear classifiers of many labels by the squared hinge loss, over sparse rows.

A label has a weight w_j for each column and a bias b. With t_i = 1 for its rows and -1 for all
others, it minimises::

    f(w, b) = |w|^2 / 2 + b^2 / 2 + cost sum_i [1 - t_i s_i]_+^2,    s_i = w . x_i + b

At the minimum w = sum_i a_i x_i and b = sum_i a_i, with a_i = 2 cost t_i [1 - t_i s_i]_+. So a
label is one number per row, and Newton's method needs products with the Gram matrix K alone, for
all labels of a block at once.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.kernels.sparse import row_sums
from rankfold.types import Interactions

_PARTS_OF_A_STEP = (1.0, 0.5, 0.25, 0.1)
_SMALLEST_GAIN = 5e-3  # of a step, relative to the loss: less ends the search
_RESIDUAL = 0.2  # of conjugate gradients, relative


class Limits(NamedTuple):
    """When the search ends."""

    steps: int = 5  # of Newton's method
    products: int = 6  # of conjugate gradients, in each step
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
    of an earlier search. With I the rows inside the margin, a step of Newton's method aims at::

        (K_II + 1 / (2 cost)) a_I = t_I,    a = 0 elsewhere

    and goes as far as f falls most.
    """
    a = torch.zeros_like(signs) if start is None else start
    scores = torch.zeros_like(signs) if start is None else rows.product(a)
    loss = _loss(a, scores, signs, cost)
    for _ in range(limits.steps):
        step, of_scores = _newton_step(rows, signs, a, scores, cost, limits)
        parts, best = torch.zeros_like(loss), loss
        for part in _PARTS_OF_A_STEP:
            there = _loss(a + part * step, scores + part * of_scores, signs, cost)
            parts = torch.where(there < best, part, parts)
            best = torch.minimum(best, there)
        a.addcmul_(step, parts)
        scores.addcmul_(of_scores, parts)
        gain = ((loss - best) / loss.clamp(min=1e-30)).max() if len(loss) else 0.0
        loss = best
        if float(gain) < limits.gain:
            break
    return a


def _newton_step(
    rows: SparseRows, signs: Tensor, a: Tensor, scores: Tensor, cost: float, limits: Limits
) -> tuple[Tensor, Tensor]:
    """A step that lowers f, and its scores; [M, B] each.

    Conjugate gradients solve for the change of the weights, H (X^T step) = X^T rest, with
    H = 1 + 2 cost X_I^T X_I. All of it is written by coefficients of rows: H X^T u is the X^T of
    u + 2 cost (K u)_I, and X^T u, X^T v have the inner product u . K v. However early it ends, f
    falls along the step.
    """
    inside = (signs * scores < 1).to(signs.dtype).mul_(signs.abs()).mul_(2 * cost)
    rest = (signs - scores).mul_(inside).sub_(a)
    image = rows.product(rest)
    direction, of_direction = rest.clone(), image.clone()
    square = (rest * image).sum(dim=0)
    step, of_scores = torch.zeros_like(a), torch.zeros_like(a)
    enough = limits.residual**2 * square
    for number in range(limits.products):
        curved = torch.addcmul(direction, inside, of_direction)
        length = square / (of_direction * curved).sum(dim=0).clamp(min=1e-30)
        length *= square > enough  # labels that are done
        step.addcmul_(direction, length)
        of_scores.addcmul_(of_direction, length)
        if number == limits.products - 1:
            break
        rest.addcmul_(curved, -length)
        image = rows.product(rest)
        before, square = square, (rest * image).sum(dim=0).clamp(min=0)
        if bool((square <= enough).all()):
            break
        share = square / before.clamp(min=1e-30)
        direction.mul_(share).add_(rest)
        of_direction.mul_(share).add_(image)
    return step, of_scores


def _loss(a: Tensor, scores: Tensor, signs: Tensor, cost: float) -> Tensor:
    """The value f of each label; |w|^2 + b^2 is the product of a and the scores; [B]."""
    short = (signs.abs() - signs * scores).clamp_(min=0)
    return 0.5 * (a * scores).sum(dim=0) + cost * short.square_().sum(dim=0)
