"""RG2 and RGx: the softmax ranking loss, expanded to second order at zero scores; [rg2].

|I_x| is the number of a query's pairs, or the sum of their grades where grades are weights; c_y is
the same for a candidate, and |D| is the sum of either. A query without pairs has weight 0. A
candidate without pairs counts as one with one pair wherever c_y is a divisor. Each of several
processes (``comm``) has the rows of its own queries; sums over queries are sums over all processes.
"""

from dataclasses import replace

import torch
from torch import Tensor

from rankfold.distributed.collectives import SINGLE_PROCESS, sum_over_ranks
from rankfold.kernels.sparse import blocks, row_sums
from rankfold.objectives.quadratic import Half, Objective, candidate_half, query_half
from rankfold.types import Comm, Interactions

PAIR_BLOCK = 2**22  # pairs summed at a time


def rg2(
    rows: Interactions,
    reg: float,
    *,
    exponent: float = -0.5,
    candidate_exponent: float = 0.0,
    comm: Comm = SINGLE_PROCESS,
) -> Objective:
    """RG2 with separable weights; [rg2], Eq. 16 at the default exponents.

    With W_xy = |I_x| b_y, b_y = max(c_y, 1)^(-2 candidate_exponent), q = 1/2 - exponent and the
    target T_xy = |I_x|^-q (r_xy N - |I_x|), r_xy the grade or 1::

        sum_xy W_xy (o_xy - T_xy)^2 + reg (B sum_x |I_x| |P_x|^2 + |D| sum_y b_y |Q_y|^2)

    with B = sum_y b_y. Rankings depend on |I_x|'s exponents in W and T through ``exponent`` alone;
    at -1/2 the target is r_xy N/|I_x| - 1, that of the paper.

    Departs from the paper: Alg. 1 prints 1/N where N is meant, and Eq. 31 a plain regulariser where
    Eqs. 36-39 have this one.
    """
    sizes, n = row_sizes(rows), rows.n_candidates
    b = column_sizes(rows, comm).clamp(min=1) ** (-2 * candidate_exponent)
    slope, power = target_line(sizes, n, exponent)
    grades, squared = _row_totals(rows, b)
    constant = (sizes * power**2).sum() * b.sum()
    constant += (sizes * slope) @ (slope * squared - 2 * power * grades)
    return Objective(
        rows,
        query_weight=sizes,
        candidate_weight=b,
        background=-sizes * power,
        pull=sizes * slope,
        query_reg=reg * b.sum() * sizes,
        candidate_reg=reg * comm.sum(sizes.sum()) * b,
        constant=sum_over_ranks(constant, comm),
        comm=comm,
    )


def rg2_weighted(
    rows: Interactions,
    reg: float,
    alpha: float,
    *,
    regulariser: str = "weighted",
    nu: float = 1.0,
    comm: Comm = SINGLE_PROCESS,
) -> Objective:
    """RG2 with extra weight on the pairs, as in the authors' experiments; [rg2], Eq. 31.

    With a_x = |I_x|/2N and S_xy = r_xy N/|I_x| - 1::

        sum_x a_x sum_y (o_xy - S_xy)^2 + alpha sum_{(x,y) in D} r_xy (o_xy - 1)^2 + regulariser

    which at alpha = 0 is RG2 over 2N. The regularisers, by name::

        weighted    reg sum_x (|I_x|/2 + alpha N) |P_x|^2 + reg sum_y (|D|/2N + alpha M) |Q_y|^2
        frequency   reg sum_x (|I_x|/2 + alpha |I_x|)^nu |P_x|^2
                    + reg sum_y (|D|/2N + alpha c_y)^nu |Q_y|^2, the sum of the weights that count
        plain       reg sum_x |P_x|^2 + reg sum_y |Q_y|^2
        matrix      reg |P Q^T|^2; [rg2], appendix A.6, whose lambda is 2N times this reg
    """
    sizes, columns, n = row_sizes(rows), column_sizes(rows, comm), rows.n_candidates
    total, n_queries = sum_over_ranks(sizes.sum(), comm), sum_over_ranks(rows.n_queries, comm)
    a, mass = sizes / (2 * n), total / (2 * n)
    ones = torch.ones_like
    query_reg, candidate_reg = {
        "weighted": (
            sizes / 2 + alpha * n * (sizes > 0),
            (mass + alpha * n_queries) * ones(columns),
        ),
        "frequency": ((sizes / 2 + alpha * sizes) ** nu, (mass + alpha * columns) ** nu),
        "plain": (ones(sizes), ones(columns)),
        "matrix": (0 * sizes, 0 * columns),
    }[regulariser]
    added = reg if regulariser == "matrix" else 0.0
    constant = rg2(rows, 0.0, comm=comm).constant / (2 * n) + alpha * total
    return Objective(
        rows,
        query_weight=a + added,
        candidate_weight=ones(columns),
        background=-a,
        pull=torch.full_like(a, 0.5 + alpha),
        query_reg=reg * query_reg,
        candidate_reg=reg * candidate_reg,
        extra=alpha,
        uncentred=added,
        constant=constant,
        comm=comm,
    )


def rgx(objective: Objective) -> Objective:
    """RGx from the weighted RG2: less sum_x (a_x/N) (sum_y o_xy)^2; [rg2], Eq. 17.

    Its scores may be shifted by a constant per query at no cost, as softmax's may. That does not
    hold for the pairs' extra weight, nor for the matrix regulariser, which is not centred.

    Departs from the paper: Eq. 17 prints the term inside the sum over y, and Eqs. 31, 38 and 39 as
    a full square form where (1^T o)^2 has rank one.
    """
    return replace(objective, centre=1 / objective.rows.n_candidates)


def rg2_sampled(
    rows: Interactions, reg: float, negatives: int, comm: Comm = SINGLE_PROCESS
) -> Objective:
    """RG2 of the sampled softmax with n uniform negatives, in expectation; [rg2], Eqs. 18-19.

    With w_neg = |I_x| n/((n+1) N), w_pos = 1/(n+1) + w_neg::

        sum_{y not in I_x} w_neg (o_xy + 1)^2 + sum_{y in I_x} w_pos (o_xy - (1/w_pos - 1))^2
        + reg sum_x |I_x| |P_x|^2 + reg (|D|/N) sum_y |Q_y|^2

    which is RG2 over N as n grows. Negatives are drawn from all candidates, positives included.

    Departs from the paper: its weights are not what the expectation gives.
    """
    sizes, n, m = row_sizes(rows), rows.n_candidates, negatives + 1
    a = sizes * negatives / (m * n)
    w_neg = torch.repeat_interleave(a, rows.counts())
    w_pos = _pair_grades(rows) / m + w_neg
    targets = _pair_grades(rows) / w_pos - 1
    return Objective(
        rows,
        query_weight=a,
        candidate_weight=torch.ones_like(column_sizes(rows)),
        background=-a,
        pull=torch.full_like(a, negatives / m),
        query_reg=reg * sizes,
        candidate_reg=torch.full_like(
            column_sizes(rows), reg * sum_over_ranks(sizes.sum(), comm) / n
        ),
        extra=1 / m,
        constant=sum_over_ranks(n * a.sum() + (w_pos * targets**2 - w_neg).sum(), comm),
        comm=comm,
    )


def rgx_sampled(
    rows: Interactions, reg: float, negatives: int, comm: Comm = SINGLE_PROCESS
) -> Objective:
    """RGx of the sampled softmax with n uniform negatives, in expectation.

    RG2's, less the expected square of the pool's sum of scores over (n+1)^2, per query::

        (n+1)^-2 [ sum_{I_x} o^2 + (2n/N)(sum_{I_x} o)(1^T o) + (|I_x| n/N) |o|^2
                   + (|I_x| n(n-1)/N^2)(1^T o)^2 ]

    As n grows this is RGx over N. docs/decisions/0009 explains why the factor is 1 and not 2.
    """
    if rows.grades is not None:
        raise ValueError("the sampled RGx does not support grades")
    o, n, m = rg2_sampled(rows, reg, negatives, comm), rows.n_candidates, negatives + 1
    weight = row_sizes(rows) * negatives**2 / (n * m**2)  # w_neg less |I_x| n/N (n+1)^-2
    return replace(
        o,
        query_weight=weight,
        extra=o.extra - 1 / m**2,
        centre=(negatives - 1) / (negatives * n),
        cross=negatives / (n * m**2),
    )


def target_line(sizes: Tensor, n: int, exponent: float) -> tuple[Tensor, Tensor]:
    """Slope and power [M] with which RG2's target is T_xy = slope_x r_xy - power_x."""
    power = torch.where(sizes > 0, sizes.clamp(min=1e-30) ** (0.5 + exponent), 0.0)  # |I_x|^(1-q)
    return n * power / sizes.clamp(min=1e-30), power


def row_sizes(rows: Interactions) -> Tensor:
    """|I_x|, or the sum of the grades; [M] float64."""
    if rows.grades is None:
        return rows.counts().double()
    queries = rows.query_of_pair().long()
    return torch.zeros_like(rows.offsets[1:], dtype=torch.float64).index_add_(
        0, queries, rows.grades.double()
    )


def _row_totals(rows: Interactions, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of r_xy b_y and that of r_xy^2 b_y over each query's pairs; [M] float64."""
    first = torch.zeros_like(rows.offsets[1:], dtype=torch.float64)
    second = torch.zeros_like(first)
    for start, stop in blocks(rows, rows.n_queries, PAIR_BLOCK):
        part, own = rows.part(start, stop), slice(start, stop)
        grades = None if part.grades is None else part.grades.double()
        first[own] = row_sums(part, weights[:, None], grades)[:, 0]
        second[own] = first[own]
        if grades is not None:
            second[own] = row_sums(part, weights[:, None], grades**2)[:, 0]
    return first, second


def column_sizes(rows: Interactions, comm: Comm = SINGLE_PROCESS) -> Tensor:
    """c_y, or the sum of the grades, over the queries of all processes; [N] float64."""
    if rows.grades is None:
        return comm.sum(rows.candidate_counts()).double()
    grades = rows.grades.double()
    return comm.sum(torch.bincount(rows.candidates, grades, minlength=rows.n_candidates))


def _pair_grades(rows: Interactions) -> Tensor:
    """The grades of the pairs, or ones; [nnz] float64."""
    if rows.grades is not None:
        return rows.grades.double()
    return torch.ones(rows.n_pairs, dtype=torch.float64, device=rows.offsets.device)


def released_query_half(o: Objective, reg: float, beta: float) -> Half:
    """The query step of the authors' released code, where it differs from the objective.

    RG2: reg + lambda. RGx (``o.centre`` > 0): (1 - beta) times the background's Gram matrix, not
    centred. Off by default; for comparison with results of that code. Without extra weight its
    fixed points are those of RG2 with scores times 1/(1 - beta), up to the sign below.
    """
    half = query_half(o)
    if o.centre == 0:
        return replace(half, reg=half.reg + reg)
    return replace(half, gram_own=_reduced(o, beta), centre=0.0)


def released_candidate_half(o: Objective, columns: Interactions, beta: float) -> Half:
    """The background's right side has the wrong sign. RGx's Gram matrix is as above."""
    half = candidate_half(o, columns)
    half = replace(half, line_other=-half.line_other)
    if o.centre == 0:
        return half
    return replace(half, gram_other=_reduced(o, beta), centre=0.0)


def _reduced(o: Objective, beta: float) -> Tensor:
    """The weights of queries times 1 - beta, but not what the regulariser added to them; [M]."""
    return (o.query_weight - o.uncentred) * (1 - beta) + o.uncentred
