"""The spectral methods: from a decomposition to vectors, and a fit by one decomposition.

Query vectors are computed from the candidate vectors and the pairs of each query. New queries are
computed in the same way: folding in the history of a fitted query gives its fitted vector.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from rankfold.distributed.collectives import sum_over_ranks
from rankfold.errors import UserError
from rankfold.kernels.sparse import blocks, row_sums
from rankfold.objectives.quadratic import Objective, value
from rankfold.solvers.shards import Shards, divide
from rankfold.solvers.spectral import Target, decompose, expected_share
from rankfold.types import Interactions, Model, Run, Step

QUERY_BLOCK, PAIR_BLOCK = 2**16, 2**22  # folded in at a time
QUERY_EXPONENT, CANDIDATE_EXPONENT = -0.375, 0.35  # defaults of RG2
TOLERANCE = 0.07  # of a decomposition's residual: loose, see docs/decisions/0030
PER_CANDIDATE = ("candidates", "fold_weights")  # tensors of a model with a row per candidate


class Factors(NamedTuple):
    """The candidate side of a spectral solution, and the numbers that give the query side."""

    candidates: Tensor  # Q [N, D], discounted
    weights: Tensor  # b_y over the discount, [N]
    scale: Tensor  # sqrt(A/B) / sigma, [D]
    constant: Tensor | None = None  # of each query vector, before its slope; [D]


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

    ``values`` [K] are sigma, ``vectors`` [N, K] are V, or with ``shards`` this process's rows.
    ``tau`` is reg sqrt(A B). A ``discount`` [N] of None is 1.
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


def with_constant(solution: Factors, scores: Tensor) -> Factors:
    """The factors with one more column, which adds ``scores`` [N] for every query."""
    column = scores.to(solution.candidates)[:, None]
    candidates = torch.cat([solution.candidates, column], dim=1)
    scale = torch.nn.functional.pad(solution.scale, (0, 1))
    constant = torch.nn.functional.pad(torch.zeros_like(solution.scale), (0, 1), value=1.0)
    return Factors(candidates, solution.weights, scale, constant)


def fold(
    solution: Factors, rows: Interactions, slope: Tensor, line: Tensor, shards: Shards | None = None
) -> Tensor:
    """Query vectors from their pairs and the candidate vectors, block by block; [M, D].

        P_x = scale ( slope_x sum_{y in I_x} r_xy b_y Q_y + line_x sum_y b_y Q_y )
              + slope_x constant

    ``rows`` is R, ``slope`` [M] is pull_x / a_x and ``line`` [M] is l_x / a_x.
    """
    weighted = solution.candidates * solution.weights[:, None]
    whole = weighted.sum(dim=0, dtype=torch.float64)
    if shards is not None:
        line_all = line[:, None].float() * shards.comm.sum(whole).float()
        result = (slope[:, None].float() * shards.sums(weighted) + line_all).mul_(solution.scale)
        return _add_constant(result, solution, slope)
    whole = whole.float()
    result = weighted.new_empty(rows.n_queries, weighted.shape[1])
    for start, stop in blocks(rows, QUERY_BLOCK, PAIR_BLOCK):
        part, own = rows.part(start, stop), slice(start, stop)
        sums = row_sums(part, weighted, part.grades).mul_(slope[own, None].float())
        result[own] = sums.addcmul_(line[own, None].float(), whole).mul_(solution.scale)
    return _add_constant(result, solution, slope)


def _add_constant(result: Tensor, solution: Factors, slope: Tensor) -> Tensor:
    if solution.constant is None:
        return result
    return result.addcmul_(slope[:, None].float(), solution.constant)


def fold_parts(solution: Factors, rows: Interactions, slope: Tensor, ids: Tensor) -> Tensor:
    """What each pair of one history adds to the scores of the candidates ``ids``; [nnz, K].

    The terms of the sum in ``fold``. Its other term depends on the size of the history only.
    """
    chosen = rows.candidates.long()
    own = (rows.all_grades() * solution.weights[chosen] * slope.float())[:, None]
    return (own * solution.candidates[chosen] * solution.scale) @ solution.candidates[ids].T


def to_tensors(solution: Factors) -> dict[str, Tensor]:
    tensors = {
        "candidates": solution.candidates,
        "fold_weights": solution.weights,
        "fold_scale": solution.scale,
    }
    return tensors if solution.constant is None else tensors | {"fold_constant": solution.constant}


def from_tensors(tensors: Mapping[str, Tensor]) -> Factors:
    candidates, weights = tensors["candidates"], tensors["fold_weights"]
    return Factors(candidates, weights, tensors["fold_scale"], tensors.get("fold_constant"))


class Fold(Protocol):
    """Query vectors from candidate factors and the pairs of the queries, [M, D]."""

    def __call__(
        self, solution: Factors, rows: Interactions, shards: Shards | None = None
    ) -> Tensor: ...


def solve(
    name: str, objective: Objective, tau: float, fold: Fold, config: Any, run: Run
) -> Iterator[Step]:
    """Decompose the target of one objective, a step per pass. The last step has the model.

    ``tau`` is the threshold on the singular values. ``config`` has ``width`` and ``tolerance``.
    """
    number, rows = 0, objective.rows
    if run.resume is not None:
        number = int(run.resume["number"])
    shards = divide(rows, min(config.width, rows.n_candidates), run)
    tables = () if shards is None else ("space", "outside")
    target = Target(objective, run.memory_budget, shards)
    passes = decompose(target, config.width, run.rng, tolerance=config.tolerance, resume=run.resume)
    for result in passes:
        number += 1
        if result.vectors is None:
            share = expected_share(result.columns, config.width)
            state = result.state.copy
            yield Step(number, result.residual, None, state, False, share, divided=tables)
            continue
        solution = factors(objective, result.values, result.vectors, tau, shards=shards)
        queries = fold(solution, rows, shards)
        n_pairs = sum_over_ranks(rows.n_pairs, run.comm)
        loss = value(objective, queries, solution.candidates, shards) / max(1, n_pairs)
        tensors = {"queries": queries, **to_tensors(solution)}
        notes = {"residual": result.residual, "columns": result.columns}
        model = Model(name, asdict(config), tensors, notes)
        yield Step(number, loss, model, dict, final=True)
