"""Implicit-feedback factorisation: WRMF, iALS, PureSVD. A pair that was not chosen is a zero."""

from dataclasses import replace

import torch
from torch import Tensor

from rankfold.distributed.collectives import SINGLE_PROCESS, sum_over_ranks
from rankfold.objectives.quadratic import Objective
from rankfold.objectives.rg import column_sizes, row_sizes
from rankfold.types import Comm, Interactions


def wrmf(
    rows: Interactions, reg: float, alpha: float, nu: float = 0.0, comm: Comm = SINGLE_PROCESS
) -> Objective:
    """Weight 1 + alpha r and target 1 on the pairs, weight 1 and target 0 elsewhere; [hu2008].

        sum_xy (1 + alpha r_xy) (o_xy - [r_xy > 0])^2 + regulariser

    with reg |P_x|^2 for a query (nu = 0), or reg times the sum of its weights to the power nu.
    """
    sums = alpha * row_sizes(rows), alpha * column_sizes(rows, comm)
    graded = rows.grades is not None and alpha > 0  # without alpha grades have no effect
    return Objective(
        rows if graded else replace(rows, grades=None),
        query_weight=_full(sums[0], 1.0),
        candidate_weight=_full(sums[1], 1.0),
        background=_full(sums[0], 0.0),
        pull=_full(sums[0], alpha if graded else 1 + alpha),
        query_reg=reg * (rows.n_candidates + sums[0]) ** nu,
        candidate_reg=reg * (sum_over_ranks(rows.n_queries, comm) + sums[1]) ** nu,
        extra=alpha,
        offset=1 / alpha if graded else 0.0,
        constant=sum_over_ranks(rows.n_pairs, comm) + sum_over_ranks(sums[0].sum(), comm),
        comm=comm,
    )


def ials(
    rows: Interactions, reg: float, background: float, nu: float = 1.0, comm: Comm = SINGLE_PROCESS
) -> Objective:
    """A square for each pair and a small one for all; [rendle2022].

        sum_D r_xy (o_xy - 1)^2 + a0 sum_xy o_xy^2
        + reg sum_x (a0 N + |I_x|)^nu |P_x|^2 + reg sum_y (a0 M + c_y)^nu |Q_y|^2

    ``background`` is a0.
    """
    rowwise, columnwise = row_sizes(rows), column_sizes(rows, comm)
    return Objective(
        rows,
        query_weight=_full(rowwise, background),
        candidate_weight=_full(columnwise, 1.0),
        background=_full(rowwise, 0.0),
        pull=_full(rowwise, 1.0),
        query_reg=reg * (background * rows.n_candidates + rowwise) ** nu,
        candidate_reg=reg * (background * sum_over_ranks(rows.n_queries, comm) + columnwise) ** nu,
        extra=1.0,
        constant=sum_over_ranks(rowwise.sum(), comm),
        comm=comm,
    )


def puresvd(rows: Interactions, comm: Comm = SINGLE_PROCESS) -> Objective:
    """|P Q^T - R|^2: the best approximation of R itself; [cremonesi2010]."""
    rowwise, columnwise = row_sizes(rows), column_sizes(rows)
    squares = rows.n_pairs if rows.grades is None else float((rows.grades.double() ** 2).sum())
    return Objective(
        rows,
        query_weight=_full(rowwise, 1.0),
        candidate_weight=_full(columnwise, 1.0),
        background=_full(rowwise, 0.0),
        pull=_full(rowwise, 1.0),
        query_reg=_full(rowwise, 0.0),
        candidate_reg=_full(columnwise, 0.0),
        constant=sum_over_ranks(squares, comm),
        comm=comm,
    )


def _full(like: Tensor, value: float) -> Tensor:
    return torch.full_like(like, value, dtype=torch.float64)
