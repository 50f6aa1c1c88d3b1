"""A fit by one decomposition of one objective: what ``rg2-plain`` and ``puresvd`` share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from time import perf_counter
from typing import Any, Protocol

from torch import Tensor

from rankfold.distributed.collectives import sum_over_ranks
from rankfold.methods.closed_form.spectral import Factors, factors, to_tensors
from rankfold.objectives.quadratic import Objective, value
from rankfold.solvers.shards import Shards, divide
from rankfold.solvers.spectral import Target, decompose, expected_share
from rankfold.types import Interactions, Model, Run, Step


class Fold(Protocol):
    """Query vectors from candidate factors and the pairs of the queries, [M, D]."""

    def __call__(
        self, solution: Factors, rows: Interactions, shards: Shards | None = None
    ) -> Tensor: ...


def solve(
    name: str, objective: Objective, tau: float, fold: Fold, config: Any, run: Run
) -> Iterator[Step]:
    """Decompose the objective's target, a step per pass. The last step has the model.

    Args:
        name: of the method.
        objective: the objective to minimise.
        tau: the threshold on the singular values.
        fold: makes the query vectors.
        config: settings with ``width`` and ``tolerance``.
        run: the run of the fit.
    """
    began, number, rows = perf_counter(), 0, objective.rows
    if run.resume is not None:
        number = int(run.resume["number"])
    shards = divide(rows, min(config.width, rows.n_candidates), run)
    tables = () if shards is None else ("space", "outside")
    target = Target(objective, run.memory_budget, shards)
    passes = decompose(target, config.width, run.rng, tolerance=config.tolerance, resume=run.resume)
    for result in passes:
        number += 1
        if result.vectors is None:
            seconds = perf_counter() - began
            share = expected_share(result.columns, config.width)
            state = result.state.copy
            yield Step(number, result.residual, seconds, None, state, False, share, divided=tables)
            began = perf_counter()
            continue
        solution = factors(objective, result.values, result.vectors, tau, shards=shards)
        queries = fold(solution, rows, shards)
        n_pairs = sum_over_ranks(rows.n_pairs, run.comm)
        loss = value(objective, queries, solution.candidates, shards) / max(1, n_pairs)
        tensors = {"queries": queries, **to_tensors(solution)}
        notes = {"residual": result.residual, "columns": result.columns}
        model = Model(name, asdict(config), tensors, notes)
        yield Step(number, loss, perf_counter() - began, model, dict, final=True)
