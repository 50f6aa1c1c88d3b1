"""RG2: the softmax ranking loss, expanded to second order at zero scores; [rg2], Eq. 16."""

from __future__ import annotations

from torch import Tensor

from rankfold.types import Interactions


def rg2_value(
    rows: Interactions, sums: Tensor, queries: Tensor, candidates: Tensor, reg: float
) -> float:
    """The objective that ``solvers.als`` minimises, over 2 N |D|, without forming the scores.

    With o = P Q^T, S_xy = r_xy N/|I_x| - 1, |D| the number of pairs::

        ( sum_x |I_x| sum_y (o_xy - S_xy)^2
          + reg sum_x N |I_x| ||P_x||^2 + reg sum_y |D| ||Q_y||^2 ) / (2 N |D|)

    expanded with ||o_x||^2 = P_x (Q^T Q) P_x^T, o_x . S_x = P_x . (N/|I_x| (R Q)_x - Q^T 1) and
    |I_x| ||S_x||^2 = N^2 - N |I_x|. A query without candidates has weight 0.

    Args:
        rows: R, [M, N].
        sums: R Q, [M, D].
        queries: P, [M, D].
        candidates: Q, [N, D].
        reg: lambda.
    """
    n, pairs = rows.n_candidates, rows.n_pairs
    p, q, rq = queries.double(), candidates.double(), sums.double()
    counts = rows.counts().double()
    squares = ((p @ (q.T @ q)) * p).sum(dim=1) @ counts
    products = n * (p * rq).sum() - (p @ q.sum(dim=0)) @ counts
    constant = float(n) ** 2 * (counts > 0).sum() - n * pairs
    penalty = reg * (n * ((p**2).sum(dim=1) @ counts) + pairs * (q**2).sum())
    return float((squares - 2 * products + constant + penalty) / (2 * n * max(pairs, 1)))
