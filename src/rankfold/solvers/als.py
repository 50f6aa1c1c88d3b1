"""Alternating least squares: the minimiser over one side's vectors, with the other side's fixed.

Each of several processes has the vectors of its own queries and of all candidates. The query step
is local. In the candidate step the pairs of a candidate are spread over the processes, and every
product with its system is a sum over them: a sweep with s steps of conjugate gradients sums s + 1
blocks of [N, D], a sweep with Cholesky D + 1. Blocks have the same rows on all processes.

With ``Shards`` a process has only some rows of the candidates. A product of the query step gathers
all of them, some at a time. A product of the candidate step does the same and scatters its sums.
"""

from functools import partial

import torch
from torch import Tensor

from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.kernels.threads import in_threads, inner, product, summed
from rankfold.objectives.quadratic import Half, Objective, candidate_half, in_dtype, query_half
from rankfold.solvers.conjugate_gradients import conjugate_gradients
from rankfold.solvers.least_squares import (
    TINY,
    Solve,
    System,
    by_division,
    inverse,
    materialised,
    pulls_of,
    squares_of,
    unweighted,
)
from rankfold.solvers.pairs import (
    PairBlock,
    Pairs,
    Side,
    candidate_side,
    local_side,
    query_side,
    runs,
)
from rankfold.solvers.shards import Shards
from rankfold.types import Comm, Interactions

_COUPLED_STEPS = 8  # of conjugate gradients in a sweep; they start from the last sweep


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
    if _is_coupled(half):
        side, opposite = (local_side(in_dtype(one, queries.dtype)) for one in (half, query_half(o)))
        return _coupled_step(side, opposite.pairs, queries, start)
    return half_step(half, queries, solve, start)


def _is_coupled(half: Half) -> bool:
    """Whether the best vector of a candidate depends on the other candidates."""
    return half.centre != 0 or half.cross != 0


def sweep(
    halves: tuple[Half, Half],
    queries: Tensor,
    candidates: Tensor,
    solve: Solve,
    shards: Shards | None = None,
    relaxation: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """A candidate step, then a query step; the new query and candidate vectors.

    Rotating both sides by the same matrix leaves the scores as they are. So each step leaves both
    sides in the basis it worked in. The second rotates the new candidates in place: the largest
    table exists twice, as the given one and the new one.

    Args:
        halves: of the queries and of the candidates.
        queries: P, [M, D].
        candidates: Q, [N, D], or this process's rows of it.
        solve: solves the systems of a block of rows.
        shards: given if candidates are divided.
        relaxation: how far a step goes, relative to its solution. Each step minimises a quadratic
            function, so that its value falls for any number between 0 and 2.
    """
    of_queries, of_candidates = (in_dtype(half, candidates.dtype) for half in halves)
    if shards is None:
        rows, columns = local_side(of_queries), local_side(of_candidates)
    else:
        rows, columns = query_side(of_queries, shards), candidate_side(of_candidates, shards)
    turn = None
    if _is_coupled(of_candidates):
        steps = _COUPLED_STEPS
        candidates = _coupled_step(columns, rows.pairs, queries, candidates, steps, relaxation)
    else:
        candidates, _, turn = _rotated_step(
            columns, queries, solve, candidates, relaxation=relaxation
        )
    queries, candidates, _ = _rotated_step(
        rows, candidates, solve, queries, turn, candidates, relaxation
    )
    return queries, candidates


def balanced(
    halves: tuple[Half, Half], queries: Tensor, candidates: Tensor, shards: Shards | None = None
) -> tuple[Tensor, Tensor]:
    """Vectors with the same scores whose regularisers are least in sum; arguments as in ``sweep``.

    With A = P^T diag(reg) P and C = Q^T diag(reg) Q these are P T and Q T^-T, where T T^T is the
    geometric mean of A^-1 and C. Every minimum is balanced in this way, but sweeps approach balance
    slowly if the regularisers are small. Without a regulariser the vectors stay as they are.
    """
    of_queries, of_candidates = (in_dtype(half, candidates.dtype) for half in halves)
    here, among = (slice(None), SINGLE_PROCESS) if shards is None else (shards.rows, shards.comm)
    comm = of_candidates.comm
    a = comm.sum(_gram(queries, of_queries.reg))
    c = among.sum(_gram(candidates, of_candidates.reg[here]))
    if min(float(a.trace()), float(c.trace())) <= 0:
        return queries, candidates
    values, basis = torch.linalg.eigh(a)
    root = basis * values.clamp(min=TINY * values[-1]) ** 0.5
    values, within = torch.linalg.eigh(root.T @ c @ root)
    fourth = values.clamp(min=TINY * values[-1]) ** 0.25
    to_queries = torch.linalg.solve(root.T, within * fourth)
    to_candidates = root @ within / fourth
    turns = (comm.broadcast(turn).to(queries.dtype) for turn in (to_queries, to_candidates))
    return product(queries, next(turns)), product(candidates, next(turns))


def half_step(
    half: Half, others: Tensor, solve: Solve, start: Tensor | None, shards: Shards | None = None
) -> Tensor:
    """Solve every row's system for these vectors of the other side; [n, D].

    A row whose system is singular gets the shortest solution. With ``shards`` the half is that of
    the queries, and the others are this process's candidates.
    """
    half = in_dtype(half, others.dtype)
    side = local_side(half) if shards is None else query_side(half, shards)
    solution, _, basis = _rotated_step(side, others, solve, start)
    return product(solution, basis.T)


def _rotated_step(
    side: Side,
    others: Tensor,
    solve: Solve,
    start: Tensor | None,
    turn: Tensor | None = None,
    out: Tensor | None = None,
    relaxation: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Solve block by block. The vectors of both sides in the basis, and the basis [D, D].

    ``turn`` rotates ``start`` as the others are rotated already. The others' vectors in the basis
    are written to ``out``, which may be ``others``. ``relaxation`` is used with a start.
    """
    half, pairs = side
    comm = half.comm
    values, basis = _eigenbasis(others, half.gram_other, half.centre, comm)
    rotated_others, turn = _rotated(basis, others, out), basis if turn is None else turn @ basis
    whole, square = comm.sum(rotated_others.sum(dim=0)), pairs.mean_square(rotated_others)
    line = comm.sum(half.line_other @ rotated_others)

    def solved(own: slice, block: Pairs, out: Tensor | None = None) -> Tensor:
        weights, reg = half.gram_own[own, None], half.reg[own, None]
        diagonal = materialised(
            lambda some: torch.addcmul(reg[some], weights[some], values), len(reg), values
        )
        system = System(
            pairs=block,
            others=rotated_others,
            square=square,
            diagonal=diagonal,
            line_own=half.line_own[own],
            line=line,
            extra=half.extra,
            offset=half.offset,
            common=half.centre * half.uncentred,
            cross=half.cross,
            whole=whole,
            sums=None if half.cross == 0 else block.sums(rotated_others, unweighted),
        )
        is_diagonal = half.extra == half.cross == half.centre * half.uncentred == 0
        by = by_division if is_diagonal else solve
        return by(
            system, None if start is None else torch.mm(start[own], turn, out=out), relaxation
        )

    places = list(pairs.blocks(rotated_others))
    if len(places) == 1:  # avoids a copy
        return solved(*places[0]), rotated_others, basis
    solution = others.new_empty(len(half.reg), others.shape[1])

    def place(own_and_block: tuple[slice, Pairs]) -> None:
        out = solution[own_and_block[0]]
        if start is None:
            out.copy_(solved(*own_and_block))
        else:
            solved(*own_and_block, out)

    if pairs.is_local and others.device.type == "cpu":
        in_threads(place, places)
    else:  # collective calls must have the same order on all processes
        for own_and_block in places:
            place(own_and_block)
    return solution, rotated_others, basis


def _rotated(basis: Tensor, vectors: Tensor, out: Tensor | None = None) -> Tensor:
    """The rows times the basis, written to ``out``, which may be the rows themselves."""
    if out is None:
        return product(vectors, basis)

    def rotate(some: slice) -> None:
        assert out is not None
        out[some] = vectors[some] @ basis

    in_threads(rotate, list(runs(vectors)))
    return out


def _coupled_step(
    side: Side,
    of_queries: Pairs,
    queries: Tensor,
    start: Tensor | None,
    steps: int = 20,
    relaxation: float = 1.0,
) -> Tensor:
    """The candidate step of RGx, where candidates depend on each other through their sum z.

    With A = sum_x a_x P_x P_x^T and C = A - uncentred P^T P, the gradient's linear part at Q is,
    for candidate y::

        A Q_y + reg_y Q_y + extra sum_{x in U_y} P_x (P_x . Q_y) - centre C z
        - cross ( sum_{x in U_y} P_x (P_x . z) + sum_x P_x (P_x . sum_{y' in I_x} Q_y') )

    Conjugate gradients run on all candidates at once. The preconditioner is the inverse of all
    terms but those of ``extra`` and ``cross``, which [sherman1950] give in closed form. Without
    these two terms it is the solution.
    """
    half, columns = side
    comm, rows_in = half.comm, columns.rows_in
    values, basis = _eigenbasis(queries, half.gram_other, comm=comm)
    rotated_queries = queries @ basis
    line = comm.sum(half.line_other @ rotated_queries)
    right = columns.sums(rotated_queries, partial(pulls_of, offset=half.offset)) + line
    diagonal = values + half.reg[:, None]
    extra, cross = half.extra, half.cross
    sizes = extra * columns.counts().to(right.dtype)[:, None]
    scale = inverse(torch.addcmul(diagonal, sizes, columns.mean_square(rotated_queries)))
    pulls = half.centre * torch.diag(values)
    if half.uncentred != 0:
        gram = comm.sum(rotated_queries.T @ rotated_queries)
        pulls -= half.centre * half.uncentred * gram
    through = _through_sum(pulls, rows_in.sum(scale.sum(dim=0)))

    def precondition(residual: Tensor, out: Tensor) -> Tensor:
        scaled = torch.mul(residual, scale, out=out)
        return scaled.addcmul_(scale, through @ rows_in.sum(scaled.sum(dim=0)))

    def product(x: Tensor) -> Tensor:
        z = rows_in.sum(x.sum(dim=0))
        across = cross * (rotated_queries @ z) if cross != 0 else None

        def weigh(some: PairBlock) -> Tensor:
            weights = squares_of(some, extra)
            return weights if across is None else weights.sub_(across[some.pairs.candidates])

        result = columns.sums(rotated_queries, weigh, x)
        result.addcmul_(diagonal, x).sub_(pulls @ z)
        if cross != 0:
            along = torch.linalg.vecdot(rotated_queries, of_queries.sums(x, unweighted))
            result -= cross * comm.sum(along @ rotated_queries)
        return result

    def dot(x: Tensor, y: Tensor) -> Tensor:
        return rows_in.sum((x * y).sum(dtype=torch.float64)).to(x.dtype)

    if extra == 0 and cross == 0:
        solution = precondition(right, right) @ basis.T
        return solution if start is None else torch.lerp(start, solution, relaxation)
    x = torch.zeros_like(right) if start is None else start @ basis
    residual = right if start is None else right - product(x)
    return conjugate_gradients(product, residual, x, precondition, dot, steps, relaxation) @ basis.T


def _through_sum(pulls: Tensor, scale: Tensor) -> Tensor:
    """C (I - diag(scale) C)^-1 for C = ``pulls``: the pull of candidates on each other; [D, D].

    Where I - diag(scale) C vanishes, nothing bounds the sum of the candidates. It is left out.
    """
    c = pulls.double()
    room = torch.eye(len(c), dtype=c.dtype, device=c.device) - scale.double()[:, None] * c
    inverted: Tensor = torch.linalg.pinv(room, atol=TINY, rtol=0.0)
    return (c @ inverted).to(pulls.dtype)


def _eigenbasis(
    vectors: Tensor, weights: Tensor, centre: float = 0.0, comm: Comm = SINGLE_PROCESS
) -> tuple[Tensor, Tensor]:
    """Eigenvalues [D] and basis [D, D] of V^T diag(weights) V - centre (V^T 1)(V^T 1)^T.

    The rows of V are those of all processes.
    """
    gram = comm.sum(_gram(vectors, weights))
    if centre != 0:
        whole = comm.sum(vectors.sum(dim=0, dtype=torch.float64))
        gram -= centre * torch.outer(whole, whole)
    values, basis = torch.linalg.eigh(gram)
    values, basis = comm.broadcast(values), comm.broadcast(basis)
    return values.clamp(min=0).to(vectors.dtype), basis.to(vectors.dtype)


def _gram(vectors: Tensor, weights: Tensor) -> Tensor:
    """V^T diag(weights) V, summed in float64; [D, D]."""
    if bool((weights == weights[:1]).all()):
        return inner(vectors, vectors).double() * weights[:1].double().sum()

    def term(some: slice) -> Tensor:
        return (vectors[some].T @ (vectors[some] * weights[some, None])).double()

    return summed(term, list(runs(vectors)))
