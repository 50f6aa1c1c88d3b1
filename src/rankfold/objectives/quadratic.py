"""One quadratic objective for RG2, RGx, their sampled forms, WRMF and iALS: plain data.

Its terms decide how it can be solved. With separable weights and regularisers in proportion to
them: spectrally. Without ``extra``: with one Gram matrix for all rows. Otherwise: row by row.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from rankfold.distributed.collectives import SINGLE_PROCESS, sum_over_ranks
from rankfold.kernels.sparse import blocks, pair_products, row_sums
from rankfold.kernels.threads import summed
from rankfold.types import Comm, Interactions

_ROW_BLOCK, _PAIR_BLOCK = 4096, 2**18  # rows and pairs of a block


@dataclass(frozen=True, slots=True)
class Objective:
    """A weighted least-squares problem in the scores o = P Q^T, up to ``constant``.

    With D the pairs and g their grades (1 without)::

        F = sum_x a_x sum_y b_y o_xy^2  -  2 sum_x l_x sum_y b_y o_xy
            + sum_{(x,y) in D} (g_xy extra o_xy^2 - 2 (g_xy + offset) pull_x b_y o_xy)
            - centre sum_x (a_x - uncentred) (sum_y o_xy)^2
            - 2 cross sum_x (sum_{y in I_x} o_xy)(sum_y o_xy)
            + sum_x query_reg_x |P_x|^2  +  sum_y candidate_reg_y |Q_y|^2  +  constant

    ``centre`` and ``cross`` (RGx) require b_y = 1 and no grades. Each of several processes has the
    rows of its own queries, and the numbers of all candidates.
    """

    rows: Interactions  # D; its grades weigh the pairs, None: all 1
    query_weight: Tensor  # a [M]
    candidate_weight: Tensor  # b [N]
    background: Tensor  # l [M]
    pull: Tensor  # [M]
    query_reg: Tensor  # [M]
    candidate_reg: Tensor  # [N]
    extra: float = 0.0
    offset: float = 0.0
    centre: float = 0.0
    uncentred: float = 0.0  # the part of every a_x that a regulariser added
    cross: float = 0.0
    constant: float = 0.0
    comm: Comm = SINGLE_PROCESS  # among which the queries are divided


class DividedCandidates(Protocol):
    """Candidates whose rows are divided among processes; see ``solvers.shards``."""

    rows: slice  # those of this process
    comm: Comm

    def pieces(self, own: Tensor, numbers: Tensor) -> Iterator[tuple[Interactions, Tensor, Tensor]]:
        """Groups of candidates: the pairs with them, their vectors, and a number for each."""
        ...


def value(
    objective: Objective,
    queries: Tensor,
    candidates: Tensor,
    divided: DividedCandidates | None = None,
) -> float:
    """F at P [M, D] and Q [N, D], without forming the scores. Blocks are summed in float64.

    Where candidates are divided, Q has the rows of this process.
    """
    o = objective
    here, comm = (slice(None), SINGLE_PROCESS) if divided is None else (divided.rows, divided.comm)
    dtype = torch.float64 if o.centre or o.cross else queries.dtype  # with them, terms cancel
    numbers = (one[here].to(dtype) for one in (o.candidate_weight, o.candidate_reg))
    *sums, penalties = _of_candidates(candidates.to(dtype), *numbers)
    gram, weighted_sum, plain_sum = (comm.sum(one) for one in sums)
    total = o.constant if o.comm.rank == 0 else 0.0  # shared terms count once
    if o.comm.rank == 0 or divided is not None:
        total += float(penalties)

    def of_queries(some: slice) -> Tensor:
        p, a = queries[some].to(dtype), o.query_weight[some].to(dtype)
        squares = torch.linalg.vecdot(p @ gram.to(dtype), p) @ a
        line = (p @ weighted_sum.to(dtype)) @ o.background[some].to(dtype)
        centred = o.centre * ((p @ plain_sum.to(dtype)) ** 2 @ (a - o.uncentred))
        penalty = torch.linalg.vecdot(p, p) @ o.query_reg[some].to(dtype)
        value: Tensor = squares - 2 * line - centred + penalty
        return value.double()

    total += float(summed(of_queries, _row_blocks(queries)))
    whole = iter([(o.rows, candidates, o.candidate_weight)])
    every = whole if divided is None else divided.pieces(candidates, o.candidate_weight)
    for rows, vectors, weights in every:
        total += _of_pairs(o, rows, queries, vectors, weights, plain_sum)
    return sum_over_ranks(total, o.comm)


def _row_blocks(vectors: Tensor) -> list[slice]:
    starts = range(0, max(1, len(vectors)), _ROW_BLOCK)
    return [slice(start, start + _ROW_BLOCK) for start in starts]


def _of_candidates(
    candidates: Tensor, b: Tensor, reg: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Q^T diag(b) Q, Q^T b, Q^T 1 and the sum of reg_y |Q_y|^2, some rows of Q at a time."""

    def term(some: slice) -> Tensor:
        q, weights = candidates[some], b[some]
        lines = torch.stack([weights, torch.ones_like(weights)]) @ q
        penalty = (reg[some] @ q.square())[None]
        return torch.cat([q.T @ (q * weights[:, None]), lines, penalty]).double()

    sums, width = summed(term, _row_blocks(candidates)), candidates.shape[1]
    return sums[:width], sums[width], sums[width + 1], sums[width + 2].sum()


def _of_pairs(
    o: Objective, rows: Interactions, queries: Tensor, vectors: Tensor, b: Tensor, whole: Tensor
) -> float:
    """The terms of the pairs with n candidates; ``whole`` [D] is the sum of all candidates."""

    def term(bounds: tuple[int, int]) -> Tensor:
        some = slice(*bounds)
        part, p = rows.part(*bounds), queries[some]
        scores = pair_products(part, p.to(vectors.dtype), vectors).double()
        pulls = torch.repeat_interleave(o.pull[some].double(), part.counts())
        pulls *= b[part.candidates]
        if part.grades is None:
            total = o.extra * (scores @ scores) - 2 * (1 + o.offset) * (pulls @ scores)
        else:
            grades = part.grades.double()
            total = grades @ (o.extra * scores**2) - 2 * (grades + o.offset) @ (pulls * scores)
        if o.cross != 0:
            sums = row_sums(part, vectors).double()
            total -= 2 * o.cross * ((p * sums).sum(dim=1) @ (p.double() @ whole))
        return total

    bounds = list(blocks(rows, _ROW_BLOCK, _PAIR_BLOCK))
    return float(summed(term, bounds)) if bounds else 0.0


@dataclass(frozen=True, slots=True)
class Half:
    """The objective as a function of one side's vectors X, the other side's Y held fixed.

    Row i minimises X_i^T G_i X_i - 2 X_i . B_i with, for the pairs (i, j) of ``rows``::

        G_i = gram_own_i sum_j gram_other_j Y_j Y_j^T + extra sum_{j in rows_i} g_ij Y_j Y_j^T
              + reg_i I
        B_i = line_own_i sum_j line_other_j Y_j
              + pull_own_i sum_{j in rows_i} (g_ij + offset) pull_other_j Y_j

    to which ``solvers.als`` adds the terms of ``centre`` and ``cross`` as in ``Objective``.
    """

    rows: Interactions
    gram_own: Tensor
    gram_other: Tensor
    line_own: Tensor
    line_other: Tensor
    pull_own: Tensor
    pull_other: Tensor
    reg: Tensor
    extra: float
    offset: float
    centre: float
    uncentred: float
    cross: float
    comm: Comm = SINGLE_PROCESS  # the processes that divide the rows of the other side
    pairs: Comm = SINGLE_PROCESS  # the processes that divide the pairs, by either side's rows


def query_half(o: Objective) -> Half:
    a, b = o.query_weight, o.candidate_weight
    return Half(
        o.rows, a, b, o.background, b, o.pull, b, o.query_reg, o.extra, o.offset, o.centre,
        o.uncentred, o.cross, pairs=o.comm,
    )  # fmt: skip


def candidate_half(o: Objective, columns: Interactions) -> Half:
    """``columns`` is ``o.rows`` transposed."""
    a, b = o.query_weight, o.candidate_weight
    return Half(
        columns, b, a, b, o.background, b, o.pull, o.candidate_reg, o.extra, o.offset, o.centre,
        o.uncentred, o.cross, o.comm, o.comm,
    )  # fmt: skip


def in_dtype(half: Half, dtype: torch.dtype) -> Half:
    """The half in another precision, its grades included."""
    tensors = {f.name: getattr(half, f.name) for f in fields(half)}
    changed: dict[str, Any] = {
        name: value.to(dtype) for name, value in tensors.items() if isinstance(value, Tensor)
    }
    rows = half.rows
    if rows.grades is not None:
        rows = replace(rows, grades=rows.grades.to(dtype))
    return replace(half, rows=rows, **changed)
