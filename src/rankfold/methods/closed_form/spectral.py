"""From a decomposition to vectors, for the spectral methods.

Query vectors are computed from the candidate vectors and the pairs of each query. New queries are
computed in the same way: folding in the history of a fitted query gives its fitted vector.
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

QUERY_BLOCK, PAIR_BLOCK = 2**16, 2**22  # folded in at a time
QUERY_EXPONENT, CANDIDATE_EXPONENT = -0.375, 0.35  # defaults of RG2
TOLERANCE = 0.07  # of a decomposition's residual: loose, see docs/concepts/quadratic.md
PER_CANDIDATE = ("candidates", "fold_weights")  # tensors of a model with a row per candidate


class Factors(NamedTuple):
    """The candidate side of a spectral solution, and the numbers that give the query side."""

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

    With A = sum a_x, B = sum b_y: Q = (B/A)^1/4 b^-1/2 V (sigma - tau)_+^1/2. The vector of each
    candidate is then divided by its ``discount``, which is not part of the objective. Components
    with sigma <= tau are left out. If T' is zero, so are the vectors.

    Args:
        objective: the separable objective.
        values: sigma, [K].
        vectors: V, [N, K].
        tau: the threshold, reg sqrt(A B).
        discount: [N]; None: all 1.
        shards: given if the vectors are those of this process's candidates alone.
    """
    kept = values > tau
    if len(values) == 0 or values[0] == 0:  # queries chose all or nothing
        nothing = vectors.new_zeros(len(vectors), 1)
        return Factors(nothing, nothing[:, 0], nothing[0])
    if not bool(kept.any()):
        raise UserError(
            "`reg` is above every singular value: no component is left", hint="try a smaller reg"
        )
    values, vectors = values[kept].double().to(vectors.device), vectors[:, kept]
    b = objective.candidate_weight.to(vectors.device)
    ratio = sum_over_ranks(objective.query_weight.sum(), objective.comm) / float(b.sum())
    columns = ratio**-0.25 * (values - tau).sqrt()
    divisor = torch.ones_like(b) if discount is None else discount.double()
    if shards is not None:
        b, divisor = b[shards.rows], divisor[shards.rows]
    candidates = vectors * (b.rsqrt() / divisor)[:, None].float() * columns.float()
    return Factors(candidates, (b * divisor).float(), (ratio**0.5 / values).float())


def fold(
    solution: Factors, rows: Interactions, slope: Tensor, line: Tensor, shards: Shards | None = None
) -> Tensor:
    """Query vectors from their pairs and the candidate vectors, block by block; [M, D].

        P_x = scale ( slope_x sum_{y in I_x} r_xy b_y Q_y + line_x sum_y b_y Q_y )

    Args:
        solution: the candidate side.
        rows: R, [M, N].
        slope: pull_x / a_x, [M].
        line: l_x / a_x, [M].
        shards: given if the candidates are divided.
    """
    weighted = solution.candidates * solution.weights[:, None]
    whole = weighted.sum(dim=0, dtype=torch.float64)
    if shards is not None:
        line_all = line[:, None].float() * shards.comm.sum(whole).float()
        return (slope[:, None].float() * shards.sums(weighted) + line_all).mul_(solution.scale)
    whole = whole.float()
    result = weighted.new_empty(rows.n_queries, weighted.shape[1])
    for start, stop in blocks(rows, QUERY_BLOCK, PAIR_BLOCK):
        part, own = rows.part(start, stop), slice(start, stop)
        sums = row_sums(part, weighted, part.grades).mul_(slope[own, None].float())
        result[own] = sums.addcmul_(line[own, None].float(), whole).mul_(solution.scale)
    return result


def to_tensors(solution: Factors) -> dict[str, Tensor]:
    return {
        "candidates": solution.candidates,
        "fold_weights": solution.weights,
        "fold_scale": solution.scale,
    }


def from_tensors(tensors: Mapping[str, Tensor]) -> Factors:
    return Factors(tensors["candidates"], tensors["fold_weights"], tensors["fold_scale"])
