"""Alternating least squares with one Gram matrix for all rows: the exact minimiser over one side.

Weights that depend on the query alone cancel in its own step, so that all queries share one D x D
system, and so do all candidates; [rg2], section 4.2. A half-sweep costs O(|D| D + (M + N) D^2).
"""

import torch
from torch import Tensor

from rankfold.types import Interactions


def query_step(rows: Interactions, sums: Tensor, candidates: Tensor, reg: float) -> Tensor:
    """The query vectors that minimise RG2 for fixed candidate vectors; [rg2], Alg. 1.

    With S_xy = r_xy N/|I_x| - 1, never formed::

        P = S Q (Q^T Q + reg N I)^-1,   S Q = N diag(|I_x|)^-1 (R Q) - 1 (1^T Q)

    Departs from the paper: Alg. 1 line 7 prints 1/N where N is meant.

    Args:
        rows: R, [M, N].
        sums: R Q, [M, D].
        candidates: Q, [N, D].
        reg: lambda, at least 0.

    Returns:
        P [M, D]; zeros for a query without candidates.
    """
    n = rows.n_candidates
    counts = rows.counts().to(candidates.dtype)[:, None]
    targets = sums * (n / counts.clamp(min=1)) - candidates.sum(dim=0)
    return torch.where(counts > 0, targets @ _inverse(_gram(candidates), reg * n, candidates), 0.0)


def candidate_step(rows: Interactions, sums: Tensor, queries: Tensor, reg: float) -> Tensor:
    """The candidate vectors that minimise RG2 for fixed query vectors; [rg2], Alg. 1.

    With W = diag(|I_x|)::

        Q = S^T W P (P^T W P + reg |D| I)^-1,   S^T W P = N R^T P - 1 (1^T W P)

    Args:
        rows: R, [M, N].
        sums: R^T P, [N, D].
        queries: P, [M, D].
        reg: lambda, at least 0.

    Returns:
        Q [N, D].
    """
    counts = rows.counts().to(queries.dtype)[:, None]
    targets = sums * rows.n_candidates - (counts * queries).sum(dim=0)
    gram = _gram(queries, counts)
    return targets @ _inverse(gram, reg * rows.n_pairs, queries)


def _gram(vectors: Tensor, weights: Tensor | None = None) -> Tensor:
    """sum_i w_i v_i v_i^T in float64; [D, D]."""
    weighted = vectors if weights is None else vectors * weights
    return (vectors.T @ weighted).double()


def _inverse(gram: Tensor, ridge: float, like: Tensor) -> Tensor:
    """(gram + ridge I)^-1, the pseudo-inverse where that is singular; computed in float64."""
    eye = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    factor, info = torch.linalg.cholesky_ex(gram + ridge * eye)
    if info == 0 and bool((factor.diagonal() > 1e-7 * factor.diagonal().max()).all()):
        inverse = torch.cholesky_inverse(factor)
    else:
        inverse = torch.linalg.pinv(gram + ridge * eye, hermitian=True, rtol=1e-6)
    return inverse.to(like.dtype)
