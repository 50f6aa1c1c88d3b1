"""The least-squares systems of a block of rows, and the ways to solve them.

In the basis that makes the shared Gram matrix diagonal, the system of a row is a diagonal plus the
Gram matrix of its own pairs. Without the latter (``extra`` = 0) it is solved by division. With it,
conjugate gradients (``conjugate_gradients``) preconditioned by the diagonal need a few steps, each
of them two sparse products for a whole block of rows. A Cholesky factorisation per row is the
reference.

A block may be all queries of a process. Tables that follow from one number per row and one per
column are then computed some rows at a time and never stored.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.kernels.sparse import pair_products
from rankfold.solvers.pairs import PairBlock, Pairs, rows_at_once, runs

TINY = 1e-7  # relative to a row's largest eigenvalue: smaller ones count as 0

Rows = Callable[[slice], Tensor]
"""Returns some rows of a table that need not be stored."""


class System(NamedTuple):
    """The systems of a block of rows, in the basis of the shared Gram matrix.

    Row i: (diag(diagonal_i) + extra sum_{j in rows_i} g_ij Y_j Y_j^T
    + common whole whole^T - cross (sums_i whole^T + whole sums_i^T)) X_i
    = line_i + sum_{j in rows_i} pull_ij Y_j, with sums_i = sum_{j in rows_i} Y_j.
    """

    pairs: Pairs  # rows, [B, m]
    others: Tensor  # Y [m, D], or this process's rows of it
    square: Tensor  # mean square of each entry of Y over the pairs, [D]
    diagonal: Rows  # [B, D]
    line_own: Tensor  # [B]; times ``line`` it is line_i
    line: Tensor  # [D]
    extra: float
    offset: float
    common: float
    cross: float
    whole: Tensor  # sum_j Y_j, [D]
    sums: Tensor | None  # [B, D]; None without ``cross``

    def right(self) -> Tensor:
        """The right sides; [B, D]."""
        return self._with_line(self.pairs.sums(self.others, self._pulls))

    def product(self, x: Tensor) -> Tensor:
        """The systems' matrices times the rows of x [B, D]."""
        result = self._with_diagonal(self.pairs.sums(self.others, self._weights, x), x, 1)
        result = self._with_common(result, x, 1)
        return result if self.sums is None else result.sub_(self._crossed(x, self.sums))

    def residual(self, x: Tensor) -> Tensor:
        """``right() - product(x)``, with one sum over the pairs; [B, D]."""
        result = self._with_line(self.pairs.sums(self.others, self._lacking, x))
        result = self._with_common(self._with_diagonal(result, x, -1), x, -1)
        return result if self.sums is None else result.add_(self._crossed(x, self.sums))

    def _with_line(self, sums: Tensor) -> Tensor:
        return sums.addcmul_(self.line_own[:, None], self.line)

    def _with_diagonal(self, sums: Tensor, x: Tensor, sign: int) -> Tensor:
        for some in runs(x):
            sums[some].addcmul_(self.diagonal(some), x[some], value=sign)
        return sums

    def _with_common(self, sums: Tensor, x: Tensor, sign: int) -> Tensor:
        if self.common == 0:
            return sums
        return sums.addr_(x @ self.whole, self.whole, alpha=sign * self.common)

    def _pulls(self, some: PairBlock) -> Tensor:
        return pulls_of(some, self.offset)

    def _weights(self, some: PairBlock) -> Tensor:
        return squares_of(some, self.extra)

    def _lacking(self, some: PairBlock) -> Tensor:
        return self._pulls(some) - self._weights(some)

    def _crossed(self, x: Tensor, sums: Tensor) -> Tensor:
        along: Tensor = torch.linalg.vecdot(sums, x)[:, None]
        return (sums * (x @ self.whole)[:, None] + along * self.whole) * self.cross


def pulls_of(some: PairBlock, offset: float) -> Tensor:
    """The weight own_i (g_ij + offset) other_j of each pair."""
    rows = some.pairs
    pulls = torch.repeat_interleave(some.pull_own, rows.counts(), output_size=rows.n_pairs)
    pulls = pulls * some.pull_other[rows.candidates]
    return pulls if rows.grades is None else pulls * (rows.grades + offset)


def squares_of(some: PairBlock, extra: float) -> Tensor:
    """The weight extra g_ij X_i . Y_j of each pair."""
    assert some.x is not None
    weights = pair_products(some.pairs, some.x, some.others, extra)
    return weights if some.pairs.grades is None else weights.mul_(some.pairs.grades)


def unweighted(_some: PairBlock) -> None:
    """Every pair has weight 1."""


Solve = Callable[[System, Tensor | None, float], Tensor]
"""Solves the systems of a block. From a start, goes this number of times the way to the solution,
in place."""


def by_division(system: System, start: Tensor | None = None, relaxation: float = 1.0) -> Tensor:
    """Solve systems whose matrices are diagonal."""
    solution = scaled(system.right(), lambda some: inverse(system.diagonal(some)))
    return solution if start is None else start.lerp_(solution, relaxation)


def by_cholesky(system: System, start: Tensor | None = None, relaxation: float = 1.0) -> Tensor:
    """Form and factor the matrix of every row. Singular ones use the pseudo-inverse."""
    others = system.others
    matrices = torch.diag_embed(system.diagonal(slice(None))).double()
    for column in range(others.shape[1]):
        weigh = partial(_entries_of, column=column, extra=system.extra)
        matrices[:, column] += system.pairs.sums(others, weigh)
    if system.sums is not None:
        sums = system.sums.double()[:, :, None] * system.whole.double()
        matrices -= system.cross * (sums + sums.mT)
    whole = system.whole.double()
    matrices += system.common * torch.outer(whole, whole)
    factors, info = torch.linalg.cholesky_ex(matrices)
    pivots = factors.diagonal(dim1=1, dim2=2)
    good = (info == 0) & (pivots.amin(dim=1) > TINY**0.5 * pivots.amax(dim=1))
    right = system.right().double()[:, :, None]
    solution = torch.empty_like(right)
    solution[good] = torch.cholesky_solve(right[good], factors[good])
    solution[~good] = torch.linalg.pinv(matrices[~good], hermitian=True, rtol=TINY) @ right[~good]
    result = solution[:, :, 0].to(others.dtype)
    return result if start is None else start.lerp_(result, relaxation)


def _entries_of(some: PairBlock, column: int, extra: float) -> Tensor:
    """The entry of extra g_ij Y_j in this column, for each pair."""
    grades = 1.0 if some.pairs.grades is None else some.pairs.grades
    return (some.others[:, column][some.pairs.candidates] * extra * grades).contiguous()


def inverse(diagonal: Tensor) -> Tensor:
    """1 / d, and 0 where d is tiny relative to the largest of its row."""
    least = TINY * diagonal.amax(dim=1, keepdim=True)
    if diagonal.numel() > 0 and bool(diagonal.amin() > least.amax()):
        return 1 / diagonal
    return torch.where(diagonal > least, 1 / diagonal, 0.0)


def materialised(rows: Rows, n: int, like: Tensor) -> Rows:
    """The rows computed once if all n fit a block, and otherwise whenever they are needed."""
    if n > rows_at_once(like):
        return rows
    table = rows(slice(None))
    return lambda some: table[some]


def scaled(table: Tensor, scale: Rows, out: Tensor | None = None) -> Tensor:
    """The table times another, entry by entry; written to ``out``, by default in place."""
    out = table if out is None else out
    for some in runs(table):
        torch.mul(table[some], scale(some), out=out[some])
    return out
