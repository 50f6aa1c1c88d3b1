"""Alternating least squares: the minimiser over one side's vectors, the other side's held fixed.

In the basis in which the Gram matrix that all rows share is diagonal, a row's system is a diagonal
plus the Gram matrix of its own pairs. Without the latter (``extra`` = 0) it is solved by division.
With it, conjugate gradients preconditioned by the diagonal need a few steps, each of them two
sparse products for a whole block of rows. Cholesky's factorisation per row is the reference.

Of several processes each has the vectors of its own queries and of all candidates. The query step
is local. In the candidate step a candidate's pairs are spread over all of them, and every product
with its system is a sum over processes: a sweep with s steps of conjugate gradients sums s + 1
blocks of [N, D], one with Cholesky D + 1. Blocks have the same rows everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.comm import ALONE
from rankfold.kernels.sparse import blocks, pair_products, row_sums
from rankfold.objectives.quadratic import (
    Half,
    Objective,
    candidate_half,
    in_dtype,
    query_half,
)
from rankfold.types import Comm, Interactions

ENTRIES = {"cpu": 2**18}  # of a block of vectors: a few of them stay in a CPU's cache
PAIRS = {"cpu": 2**16}  # of a block, likewise
LARGEST = 2**26  # of either, elsewhere
TINY = 1e-7  # relative to a row's largest eigenvalue: smaller ones are taken as 0


class System(NamedTuple):
    """The systems of a block of rows, in the basis of the shared Gram matrix.

    Row i: (diag(diagonal_i) + extra sum_{j in rows_i} g_ij Y_j Y_j^T
    - cross (sums_i whole^T + whole sums_i^T)) X_i = line_i + sum_{j in rows_i} pull_ij Y_j,
    with sums_i = sum_{j in rows_i} Y_j.
    """

    rows: Interactions  # [B, m]
    others: Tensor  # Y [m, D]
    square: Tensor  # a pair's mean square of each entry of Y, [D]
    diagonal: Tensor  # [B, D]
    line: Tensor  # [B, D]
    pulls: Tensor  # one per pair
    extra: float
    cross: float
    whole: Tensor  # sum_j Y_j, [D]
    comm: Comm  # among which the others, and so the pairs, are divided

    def sums(self, weights: Tensor | None = None) -> Tensor:
        """The sum of each row's Y_j, weighted by pair; [B, D]."""
        return self.comm.sum(row_sums(self.rows, self.others, weights))

    def counts(self) -> Tensor:
        """How many pairs each row has; [B]."""
        return self.comm.sum(self.rows.counts())

    def right(self) -> Tensor:
        """The right sides; [B, D]."""
        return self.sums(self.pulls).add_(self.line)

    def product(self, x: Tensor) -> Tensor:
        """The systems' matrices times the rows of x [B, D]."""
        result = self.sums(self._weights(x)).addcmul_(self.diagonal, x)
        return result if self.cross == 0 else result.sub_(self._crossed(x))

    def residual(self, x: Tensor) -> Tensor:
        """``right() - product(x)``, with one sum over the pairs; [B, D]."""
        weights = self.pulls - self._weights(x)
        result = self.sums(weights).add_(self.line)
        result.addcmul_(self.diagonal, x, value=-1)
        return result if self.cross == 0 else result.add_(self._crossed(x))

    def _weights(self, x: Tensor) -> Tensor:
        weights = pair_products(self.rows, x, self.others).mul_(self.extra)
        return weights if self.rows.grades is None else weights.mul_(self.rows.grades)

    def _crossed(self, x: Tensor) -> Tensor:
        sums = self.sums()
        along: Tensor = torch.linalg.vecdot(sums, x)[:, None]
        return (sums * (x @ self.whole)[:, None] + along * self.whole) * self.cross


Solve = Callable[[System, Tensor | None], Tensor]
"""Solves a block's systems; given vectors to start from, it may."""


def query_step(o: Objective, candidates: Tensor, solve: Solve, start: Tensor | None) -> Tensor:
    """The query vectors that minimise the objective for these candidate vectors; [M, D]."""
    return half_step(query_half(o), candidates, solve, start)


def candidate_step(
    o: Objective, columns: Interactions, queries: Tensor, solve: Solve, start: Tensor | None
) -> Tensor:
    """The candidate vectors that minimise the objective for these query vectors; [N, D].

    ``columns`` is ``o.rows`` transposed.
    """
    half = candidate_half(o, columns)
    if is_coupled(half):
        return coupled_step(half, o.rows, queries, start)
    return half_step(half, queries, solve, start)


def is_coupled(half: Half) -> bool:
    """True where a candidate's best vector depends on the other candidates'."""
    return half.centre != 0 or half.cross != 0


def sweep(
    halves: tuple[Half, Half],
    queries: Tensor,
    candidates: Tensor,
    solve: Solve,
) -> tuple[Tensor, Tensor]:
    """A candidate step, then a query step, from these vectors; new query and candidate vectors.

    Scores do not change where both sides are turned alike, so that each step leaves both in the
    basis it worked in.

    Args:
        halves: of the queries and of the candidates.
        queries: P, [M, D].
        candidates: Q, [N, D].
        solve: how a row's system is solved.
    """
    of_queries, of_candidates = halves
    if is_coupled(of_candidates):
        candidates = coupled_step(of_candidates, of_queries.rows, queries, candidates)
    else:
        candidates, queries, _ = _turned_step(of_candidates, queries, solve, candidates)
    queries, candidates, _ = _turned_step(of_queries, candidates, solve, queries)
    return queries, candidates


def half_step(half: Half, others: Tensor, solve: Solve, start: Tensor | None) -> Tensor:
    """Solve every row's system for these vectors of the other side; [n, D].

    A row without a determined vector gets the shortest.
    """
    found, _, basis = _turned_step(half, others, solve, start)
    return found @ basis.T


def _turned_step(
    half: Half, others: Tensor, solve: Solve, start: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Block by block; the rows' vectors and the others' in the basis, and the basis [D, D]."""
    half = in_dtype(half, others.dtype)
    comm = half.comm
    values, basis = eigenbasis(others, half.gram_other, half.centre, comm)
    turned = others @ basis
    whole, square = comm.sum(turned.sum(dim=0)), mean_square(half.rows, turned, half.pairs)
    line = comm.sum(half.line_other @ turned)
    found: Tensor = others.new_empty(half.rows.n_queries, others.shape[1])
    kind, width = others.device.type, others.shape[1]
    most = max(64, ENTRIES.get(kind, LARGEST) // width), PAIRS.get(kind, LARGEST)
    for first, last in blocks(_of_all(half), *most):
        part, own = half.rows.part(first, last), slice(first, last)
        system = System(
            rows=part,
            others=turned,
            square=square,
            diagonal=half.gram_own[own, None] * values + half.reg[own, None],
            line=half.line_own[own, None] * line,
            pulls=_pulls(part, half.pull_own[own], half.pull_other, half.offset),
            extra=half.extra,
            cross=half.cross,
            whole=whole,
            comm=comm,
        )
        if half.extra == 0 and half.cross == 0:
            found[own] = system.right().mul_(inverse(system.diagonal))
        else:
            found[own] = solve(system, None if start is None else start[own] @ basis)
    return found, turned, basis


def _of_all(half: Half) -> Interactions:
    """The rows with as many pairs as all processes have together: their blocks are those of all."""
    counts = half.comm.sum(half.rows.counts())
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return replace(half.rows, offsets=offsets)


def by_conjugate_gradients(steps: int) -> Solve:
    """So many steps for every row at once, preconditioned by about the diagonal of its system.

    What a row's own pairs add to the diagonal is taken as their number times the mean.
    """

    def solve(system: System, start: Tensor | None) -> Tensor:
        sizes = system.extra * system.counts().to(system.others.dtype)[:, None]
        scale = inverse(torch.addcmul(system.diagonal, sizes, system.square))
        if start is None:
            x, residual = torch.zeros_like(system.diagonal), system.right()
        else:
            x = start.mul_(scale > 0)  # nothing holds the rest: it is left at 0
            residual = system.residual(x)
        return conjugate_gradients(
            system.product,
            residual,
            x,
            lambda rest: rest * scale,
            lambda x, y: torch.linalg.vecdot(x, y)[:, None],
            steps,
        )

    return solve


def by_cholesky(system: System, _start: Tensor | None = None) -> Tensor:
    """Form and factor the matrix of every row; the pseudo-inverse where that is singular."""
    rows, others = system.rows, system.others
    grades = 1.0 if rows.grades is None else rows.grades
    matrices = torch.diag_embed(system.diagonal).double()
    for column in range(others.shape[1]):
        weights = (others[:, column][rows.candidates] * system.extra * grades).contiguous()
        matrices[:, column] += system.sums(weights)
    sums = system.sums().double()[:, :, None] * system.whole.double()
    matrices -= system.cross * (sums + sums.mT)
    factors, info = torch.linalg.cholesky_ex(matrices)
    pivots = factors.diagonal(dim1=1, dim2=2)
    good = (info == 0) & (pivots.amin(dim=1) > TINY**0.5 * pivots.amax(dim=1))
    right = system.right().double()[:, :, None]
    solution = torch.empty_like(right)
    solution[good] = torch.cholesky_solve(right[good], factors[good])
    solution[~good] = torch.linalg.pinv(matrices[~good], hermitian=True, rtol=TINY) @ right[~good]
    return solution[:, :, 0].to(others.dtype)


def coupled_step(
    half: Half, rows: Interactions, queries: Tensor, start: Tensor | None, steps: int = 20
) -> Tensor:
    """The candidate step of RGx, where candidates depend on each other through their sum z.

    With A = sum_x a_x P_x P_x^T, the gradient's linear part at Q is, for candidate y::

        A Q_y + reg_y Q_y + extra sum_{x in U_y} P_x (P_x . Q_y) - centre A z
        - cross ( sum_{x in U_y} P_x (P_x . z) + sum_x P_x (P_x . sum_{y' in I_x} Q_y') )

    Conjugate gradients on all candidates at once, preconditioned by the inverse of all but the
    terms of ``extra`` and ``cross``, which [sherman1950] give in closed form; without these two
    terms that is the solution.
    """
    half = in_dtype(half, queries.dtype)
    comm = half.comm
    values, basis = eigenbasis(queries, half.gram_other, comm=comm)
    turned = queries @ basis
    line = comm.sum(half.line_other @ turned)
    pulls = _pulls(half.rows, half.pull_own, half.pull_other, half.offset)
    right = comm.sum(row_sums(half.rows, turned, pulls)) + line
    diagonal = values + half.reg[:, None]
    columns, extra, cross = half.rows, half.extra, half.cross
    sizes = extra * comm.sum(columns.counts()).to(right.dtype)[:, None]
    scale = inverse(torch.addcmul(diagonal, sizes, mean_square(columns, turned, half.pairs)))
    pulls = half.centre * values
    room = 1 - pulls * scale.sum(dim=0)  # 0 where nothing holds the sum: then it is left out
    through = torch.where(room > TINY, pulls / room, 0.0)

    def precondition(residual: Tensor) -> Tensor:
        scaled = residual * scale
        return scaled.addcmul_(scale, through * scaled.sum(dim=0))

    def product(x: Tensor) -> Tensor:
        z = x.sum(dim=0)
        weights = pair_products(columns, x, turned).mul_(extra)
        if columns.grades is not None:
            weights *= columns.grades
        if cross != 0:
            weights -= cross * (turned @ z)[columns.candidates]
        result = comm.sum(row_sums(columns, turned, weights))
        result.addcmul_(diagonal, x).sub_(pulls * z)
        if cross != 0:
            along = torch.linalg.vecdot(turned, row_sums(rows, x))
            result -= cross * comm.sum(along @ turned)
        return result

    if extra == 0 and cross == 0:
        return precondition(right) @ basis.T
    x = torch.zeros_like(right) if start is None else start @ basis
    residual = right if start is None else right - product(x)
    return conjugate_gradients(product, residual, x, precondition, _dot, steps) @ basis.T


def conjugate_gradients(
    product: Callable[[Tensor], Tensor],
    residual: Tensor,
    x: Tensor,
    precondition: Callable[[Tensor], Tensor],
    dot: Callable[[Tensor, Tensor], Tensor],
    steps: int,
) -> Tensor:
    """Steps from ``x`` towards the solution, for a positive definite product.

    With ``dot`` row by row, every row is a system of its own. A direction along which the product
    vanishes is not taken, nor any once what is left is rounding. ``x`` and ``residual``, which is
    what the product of x lacks, are overwritten.
    """
    direction = precondition(residual)
    size = dot(residual, direction)
    rounding = size * torch.finfo(x.dtype).eps ** 2
    for step in range(1, steps + 1):
        moved = product(direction)
        along = dot(direction, moved)
        length = torch.where((along > 0) & (size > rounding), size / along, 0.0)
        x.addcmul_(length, direction)
        if step == steps:
            break
        residual.addcmul_(length, moved, value=-1)
        conditioned = precondition(residual)
        before, size = size, dot(residual, conditioned)
        direction = conditioned.addcmul_(torch.where(before > 0, size / before, 0.0), direction)
    return x


def eigenbasis(
    vectors: Tensor, weights: Tensor, centre: float = 0.0, comm: Comm = ALONE
) -> tuple[Tensor, Tensor]:
    """Eigenvalues [D] and basis [D, D] of V^T diag(weights) V - centre (V^T 1)(V^T 1)^T.

    The rows of V are those of all processes.
    """
    gram = comm.sum((vectors.T @ _weighted(vectors, weights)).double())
    if centre != 0:
        whole = comm.sum(vectors.sum(dim=0, dtype=torch.float64))
        gram -= centre * torch.outer(whole, whole)
    values, basis = torch.linalg.eigh(gram)
    values, basis = comm.broadcast(values), comm.broadcast(basis)
    return values.clamp(min=0).to(vectors.dtype), basis.to(vectors.dtype)


def mean_square(rows: Interactions, others: Tensor, comm: Comm = ALONE) -> Tensor:
    """The mean square of each entry of Y over the pairs; [D]."""
    counts = rows.candidate_counts().to(others.dtype)
    return comm.sum(counts @ others**2) / comm.sum(counts.sum()).clamp(min=1)


def inverse(diagonal: Tensor) -> Tensor:
    """1 / d, and 0 where that is tiny beside the largest of its row."""
    largest = diagonal.amax(dim=1, keepdim=True)
    return torch.where(diagonal > TINY * largest, 1 / diagonal, 0.0)


def _weighted(vectors: Tensor, weights: Tensor) -> Tensor:
    """Each vector times its weight; the vectors themselves where all weights are 1."""
    return vectors if bool((weights == 1).all()) else vectors * weights[:, None]


def _dot(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum(dtype=torch.float64).to(x.dtype)


def _pulls(rows: Interactions, own: Tensor, other: Tensor, offset: float) -> Tensor:
    """own_i (g_ij + offset) other_j for each pair."""
    pulls = torch.repeat_interleave(own, rows.counts(), output_size=rows.n_pairs)
    pulls = pulls * other[rows.candidates]
    return pulls if rows.grades is None else pulls * (rows.grades + offset)
