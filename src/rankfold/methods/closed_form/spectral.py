"""What the spectral methods share: from a decomposition to vectors, and new queries from these.

The query vectors are computed from the candidate vectors and each query's own pairs, and so are
those of new queries: a fitted row is what ``fold_in`` gives for its history.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.distributed.collectives import sum_over_ranks
from rankfold.errors import UserError
from rankfold.kernels.sparse import blocks, row_sums
from rankfold.objectives.quadratic import Objective
from rankfold.solvers.shards import Shards
from rankfold.types import Interactions

ROWS, PAIRS = 2**16, 2**22  # folded in at a time
QUERY_EXPONENT, CANDIDATE_EXPONENT = -0.375, 0.35  # of RG2: usually good
TOLERANCE = 0.07  # of a decomposition's residual: loose, see docs/concepts/quadratic.md


class Factors(NamedTuple):
    """One side of a spectral solution, and what gives the other."""

    candidates: Tensor  # Q [N, D], discounted
    weights: Tensor  # b_y over the discount, [N]
    scale: Tensor  # sqrt(A/B) / sigma, [D]


def factors(
    objective: Objective,
    values: Tensor,
    vectors: Tensor,
    tau: float,
    discount: Tensor | None = None,
    shards: Shards | None = None,
) -> Factors:
    """The candidate vectors of the minimiser at threshold tau.

    With A = sum a_x, B = sum b_y: Q = (B/A)^1/4 b^-1/2 V (sigma - tau)_+^1/2, each candidate's
    vector then over its ``discount``, which is no part of the objective. Components with
    sigma <= tau are left out. Where T' is zero, so are the vectors.

    Args:
        objective: what is solved.
        values: sigma, [K].
        vectors: V, [N, K].
        tau: the threshold, reg sqrt(A B).
        discount: [N], None: all 1.
        shards: where the vectors are those of some of the candidates.
    """
    kept = values > tau
    if len(values) == 0 or values[0] == 0:  # all or nothing was chosen: there is no order
        nothing = vectors.new_zeros(len(vectors), 1)
        return Factors(nothing, nothing[:, 0], nothing[0])
    if not bool(kept.any()):
        raise UserError("reg leaves nothing of the data", hint="try a smaller reg")
    values, vectors = values[kept].double().to(vectors.device), vectors[:, kept]
    b = objective.candidate_weight.to(vectors.device)
    ratio = sum_over_ranks(objective.query_weight.sum(), objective.comm) / float(b.sum())
    columns = ratio**-0.25 * (values - tau).sqrt()
    over = torch.ones_like(b) if discount is None else discount.double()
    if shards is not None:
        b, over = b[shards.rows], over[shards.rows]
    candidates = vectors * (b.rsqrt() / over)[:, None].float() * columns.float()
    return Factors(candidates, (b * over).float(), (ratio**0.5 / values).float())


def fold(
    found: Factors, rows: Interactions, slope: Tensor, line: Tensor, shards: Shards | None = None
) -> Tensor:
    """Query vectors from their pairs and the candidate vectors, block by block; [M, D].

        P_x = scale ( slope_x sum_{y in I_x} r_xy b_y Q_y + line_x sum_y b_y Q_y )

    Args:
        found: the candidates' side.
        rows: R, [M, N].
        slope: pull_x / a_x, [M].
        line: l_x / a_x, [M].
        shards: of these rows, where the candidates are divided.
    """
    weighted = found.candidates * found.weights[:, None]
    whole = weighted.sum(dim=0, dtype=torch.float64)
    if shards is not None:
        line_all = line[:, None].float() * shards.comm.sum(whole).float()
        return (slope[:, None].float() * shards.sums(weighted) + line_all).mul_(found.scale)
    whole = whole.float()
    result = weighted.new_empty(rows.n_queries, weighted.shape[1])
    for start, stop in blocks(rows, ROWS, PAIRS):
        part, own = rows.part(start, stop), slice(start, stop)
        sums = row_sums(part, weighted, part.grades).mul_(slope[own, None].float())
        result[own] = sums.addcmul_(line[own, None].float(), whole).mul_(found.scale)
    return result


def to_tensors(found: Factors) -> dict[str, Tensor]:
    return {
        "candidates": found.candidates,
        "fold_weights": found.weights,
        "fold_scale": found.scale,
    }


def from_tensors(tensors: Mapping[str, Tensor]) -> Factors:
    return Factors(tensors["candidates"], tensors["fold_weights"], tensors["fold_scale"])
