"""Alternating least squares: the minimiser over one side's vectors, the other side's held fixed.

In the basis in which the Gram matrix that all rows share is diagonal, a row's system is a diagonal
plus the Gram matrix of its own pairs. Without the latter (``extra`` = 0) it is solved by division.
With it, conjugate gradients preconditioned by the diagonal need a few steps, each of them two
sparse products for a whole block of rows. Cholesky's factorisation per row is the reference.

Of several processes each has the vectors of its own queries and of all candidates. The query step
is local. In the candidate step a candidate's pairs are spread over all of them, and every product
with its system is a sum over processes: a sweep with s steps of conjugate gradients sums s + 1
blocks of [N, D], one with Cholesky D + 1. Blocks have the same rows everywhere.

With ``Shards`` each has some rows of the candidates only. A product of the query step gathers them
all, some at a time; one of the candidate step does so, too, and scatters its sums.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.comm import ALONE
from rankfold.kernels.sparse import pair_products
from rankfold.objectives.quadratic import (
    Half,
    Objective,
    candidate_half,
    in_dtype,
    query_half,
)
from rankfold.solvers.pairs import (
    Pairs,
    Side,
    Some,
    candidate_side,
    held_side,
    query_side,
)
from rankfold.solvers.shards import Shards
from rankfold.types import Comm, Interactions

TINY = 1e-7  # relative to a row's largest eigenvalue: smaller ones are taken as 0


class System(NamedTuple):
    """The systems of a block of rows, in the basis of the shared Gram matrix.

    Row i: (diag(diagonal_i) + extra sum_{j in rows_i} g_ij Y_j Y_j^T
    - cross (sums_i whole^T + whole sums_i^T)) X_i = line_i + sum_{j in rows_i} pull_ij Y_j,
    with sums_i = sum_{j in rows_i} Y_j.
    """

    pairs: Pairs  # rows, [B, m]
    others: Tensor  # Y [m, D], or those of its rows that are here
    square: Tensor  # a pair's mean square of each entry of Y, [D]
    diagonal: Tensor  # [B, D]
    line: Tensor  # [B, D]
    extra: float
    offset: float
    cross: float
    whole: Tensor  # sum_j Y_j, [D]
    sums: Tensor | None  # [B, D]; None without ``cross``

    def right(self) -> Tensor:
        """The right sides; [B, D]."""
        return self.pairs.sums(self.others, self._pulls).add_(self.line)

    def product(self, x: Tensor) -> Tensor:
        """The systems' matrices times the rows of x [B, D]."""
        result = self.pairs.sums(self.others, self._weights, x).addcmul_(self.diagonal, x)
        return result if self.sums is None else result.sub_(self._crossed(x, self.sums))

    def residual(self, x: Tensor) -> Tensor:
        """``right() - product(x)``, with one sum over the pairs; [B, D]."""
        result = self.pairs.sums(self.others, self._lacking, x).add_(self.line)
        result.addcmul_(self.diagonal, x, value=-1)
        return result if self.sums is None else result.add_(self._crossed(x, self.sums))

    def _pulls(self, some: Some) -> Tensor:
        return pulls_of(some, self.offset)

    def _weights(self, some: Some) -> Tensor:
        return squares_of(some, self.extra)

    def _lacking(self, some: Some) -> Tensor:
        return self._pulls(some) - self._weights(some)

    def _crossed(self, x: Tensor, sums: Tensor) -> Tensor:
        along: Tensor = torch.linalg.vecdot(sums, x)[:, None]
        return (sums * (x @ self.whole)[:, None] + along * self.whole) * self.cross


def pulls_of(some: Some, offset: float) -> Tensor:
    """The weight own_i (g_ij + offset) other_j of each pair."""
    rows = some.pairs
    pulls = torch.repeat_interleave(some.pull_own, rows.counts(), output_size=rows.n_pairs)
    pulls = pulls * some.pull_other[rows.candidates]
    return pulls if rows.grades is None else pulls * (rows.grades + offset)


def squares_of(some: Some, extra: float) -> Tensor:
    """The weight extra g_ij X_i . Y_j of each pair."""
    assert some.x is not None
    weights = pair_products(some.pairs, some.x, some.others).mul_(extra)
    return weights if some.pairs.grades is None else weights.mul_(some.pairs.grades)


def unweighed(_some: Some) -> None:
    """Each pair counts 1."""


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
        side, opposite = (held_side(in_dtype(one, queries.dtype)) for one in (half, query_half(o)))
        return coupled_step(side, opposite.pairs, queries, start)
    return half_step(half, queries, solve, start)


def is_coupled(half: Half) -> bool:
    """True where a candidate's best vector depends on the other candidates'."""
    return half.centre != 0 or half.cross != 0


def sweep(
    halves: tuple[Half, Half],
    queries: Tensor,
    candidates: Tensor,
    solve: Solve,
    shards: Shards | None = None,
) -> tuple[Tensor, Tensor]:
    """A candidate step, then a query step, from these vectors; new query and candidate vectors.

    Scores do not change where both sides are turned alike, so that each step leaves both in the
    basis it worked in.

    Args:
        halves: of the queries and of the candidates.
        queries: P, [M, D].
        candidates: Q, [N, D], or those of its rows that are here.
        solve: how a row's system is solved.
        shards: where candidates are divided.
    """
    of_queries, of_candidates = (in_dtype(half, candidates.dtype) for half in halves)
    if shards is None:
        rows, columns = held_side(of_queries), held_side(of_candidates)
    else:
        rows, columns = query_side(of_queries, shards), candidate_side(of_candidates, shards)
    if is_coupled(of_candidates):
        candidates = coupled_step(columns, rows.pairs, queries, candidates)
    else:
        candidates, queries, _ = _turned_step(columns, queries, solve, candidates)
    queries, candidates, _ = _turned_step(rows, candidates, solve, queries)
    return queries, candidates


def half_step(
    half: Half, others: Tensor, solve: Solve, start: Tensor | None, shards: Shards | None = None
) -> Tensor:
    """Solve every row's system for these vectors of the other side; [n, D].

    A row without a determined vector gets the shortest. With ``shards`` the half is that of the
    queries, and the others are the candidates that are here.
    """
    half = in_dtype(half, others.dtype)
    side = held_side(half) if shards is None else query_side(half, shards)
    found, _, basis = _turned_step(side, others, solve, start)
    return found @ basis.T


def _turned_step(
    side: Side, others: Tensor, solve: Solve, start: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Block by block; the rows' vectors and the others' in the basis, and the basis [D, D]."""
    half, pairs = side
    comm = half.comm
    values, basis = eigenbasis(others, half.gram_other, half.centre, comm)
    turned = others @ basis
    whole, square = comm.sum(turned.sum(dim=0)), pairs.mean_square(turned)
    line = comm.sum(half.line_other @ turned)
    found: Tensor = others.new_empty(len(half.reg), others.shape[1])
    for own, block in pairs.blocks(turned):
        system = System(
            pairs=block,
            others=turned,
            square=square,
            diagonal=half.gram_own[own, None] * values + half.reg[own, None],
            line=half.line_own[own, None] * line,
            extra=half.extra,
            offset=half.offset,
            cross=half.cross,
            whole=whole,
            sums=None if half.cross == 0 else block.sums(turned, unweighed),
        )
        if half.extra == 0 and half.cross == 0:
            found[own] = system.right().mul_(inverse(system.diagonal))
        else:
            found[own] = solve(system, None if start is None else start[own] @ basis)
    return found, turned, basis


def by_conjugate_gradients(steps: int) -> Solve:
    """So many steps for every row at once, preconditioned by about the diagonal of its system.

    What a row's own pairs add to the diagonal is taken as their number times the mean.
    """

    def solve(system: System, start: Tensor | None) -> Tensor:
        sizes = system.extra * system.pairs.counts().to(system.others.dtype)[:, None]
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
    others = system.others
    matrices = torch.diag_embed(system.diagonal).double()
    for column in range(others.shape[1]):
        weigh = partial(_entries_of, column=column, extra=system.extra)
        matrices[:, column] += system.pairs.sums(others, weigh)
    if system.sums is not None:
        sums = system.sums.double()[:, :, None] * system.whole.double()
        matrices -= system.cross * (sums + sums.mT)
    factors, info = torch.linalg.cholesky_ex(matrices)
    pivots = factors.diagonal(dim1=1, dim2=2)
    good = (info == 0) & (pivots.amin(dim=1) > TINY**0.5 * pivots.amax(dim=1))
    right = system.right().double()[:, :, None]
    solution = torch.empty_like(right)
    solution[good] = torch.cholesky_solve(right[good], factors[good])
    solution[~good] = torch.linalg.pinv(matrices[~good], hermitian=True, rtol=TINY) @ right[~good]
    return solution[:, :, 0].to(others.dtype)


def _entries_of(some: Some, column: int, extra: float) -> Tensor:
    """The entry of extra g_ij Y_j in this column, for each pair."""
    grades = 1.0 if some.pairs.grades is None else some.pairs.grades
    return (some.others[:, column][some.pairs.candidates] * extra * grades).contiguous()


def coupled_step(
    side: Side, of_queries: Pairs, queries: Tensor, start: Tensor | None, steps: int = 20
) -> Tensor:
    """The candidate step of RGx, where candidates depend on each other through their sum z.

    With A = sum_x a_x P_x P_x^T, the gradient's linear part at Q is, for candidate y::

        A Q_y + reg_y Q_y + extra sum_{x in U_y} P_x (P_x . Q_y) - centre A z
        - cross ( sum_{x in U_y} P_x (P_x . z) + sum_x P_x (P_x . sum_{y' in I_x} Q_y') )

    Conjugate gradients on all candidates at once, preconditioned by the inverse of all but the
    terms of ``extra`` and ``cross``, which [sherman1950] give in closed form; without these two
    terms that is the solution.
    """
    half, columns = side
    comm, rows_in = half.comm, columns.rows_in
    values, basis = eigenbasis(queries, half.gram_other, comm=comm)
    turned = queries @ basis
    line = comm.sum(half.line_other @ turned)
    right = columns.sums(turned, partial(pulls_of, offset=half.offset)) + line
    diagonal = values + half.reg[:, None]
    extra, cross = half.extra, half.cross
    sizes = extra * columns.counts().to(right.dtype)[:, None]
    scale = inverse(torch.addcmul(diagonal, sizes, columns.mean_square(turned)))
    pulls = half.centre * values
    room = 1 - pulls * rows_in.sum(scale.sum(dim=0))  # 0 where nothing holds the sum: left out
    through = torch.where(room > TINY, pulls / room, 0.0)

    def precondition(residual: Tensor) -> Tensor:
        scaled = residual * scale
        return scaled.addcmul_(scale, through * rows_in.sum(scaled.sum(dim=0)))

    def product(x: Tensor) -> Tensor:
        z = rows_in.sum(x.sum(dim=0))
        across = cross * (turned @ z) if cross != 0 else None

        def weigh(some: Some) -> Tensor:
            weights = squares_of(some, extra)
            return weights if across is None else weights.sub_(across[some.pairs.candidates])

        result = columns.sums(turned, weigh, x)
        result.addcmul_(diagonal, x).sub_(pulls * z)
        if cross != 0:
            along = torch.linalg.vecdot(turned, of_queries.sums(x, unweighed))
            result -= cross * comm.sum(along @ turned)
        return result

    def dot(x: Tensor, y: Tensor) -> Tensor:
        return rows_in.sum((x * y).sum(dtype=torch.float64)).to(x.dtype)

    if extra == 0 and cross == 0:
        return precondition(right) @ basis.T
    x = torch.zeros_like(right) if start is None else start @ basis
    residual = right if start is None else right - product(x)
    return conjugate_gradients(product, residual, x, precondition, dot, steps) @ basis.T


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


def inverse(diagonal: Tensor) -> Tensor:
    """1 / d, and 0 where that is tiny beside the largest of its row."""
    largest = diagonal.amax(dim=1, keepdim=True)
    return torch.where(diagonal > TINY * largest, 1 / diagonal, 0.0)


def _weighted(vectors: Tensor, weights: Tensor) -> Tensor:
    """Each vector times its weight; the vectors themselves where all weights are 1."""
    return vectors if bool((weights == 1).all()) else vectors * weights[:, None]
