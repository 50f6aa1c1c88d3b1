"""One objective, one decomposition: RG2 exactly as the paper has it, and PureSVD."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Literal

import torch
from torch import Tensor

from rankfold.distributed.collectives import sum_over_ranks
from rankfold.errors import UserError
from rankfold.methods.als.alternating import Sweeping, alternate, folded, make_plain
from rankfold.methods.closed_form.spectral import (
    Factors,
    factors,
    fold,
    from_tensors,
    to_tensors,
)
from rankfold.methods.pair_weights import training_rows, weighed
from rankfold.objectives.implicit import puresvd
from rankfold.objectives.quadratic import Objective, value
from rankfold.objectives.rg import rg2, row_sizes, target_line
from rankfold.solvers.shards import Shards, divide
from rankfold.solvers.spectral import Target, decompose, expected_share
from rankfold.types import Dataset, Interactions, Method, Model, Run, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainConfig(Sweeping):
    """The paper's objective. Sweeps, steps and start are the solver als's alone."""

    reg: float = 0.3  # lambda
    solver: Literal["spectral", "als"] = "spectral"
    tolerance: float = 0.01  # of the decomposition's residual


@dataclass(frozen=True, slots=True, kw_only=True)
class PureSvdConfig:
    """The best approximation of the pairs themselves."""

    width: int = 64
    tolerance: float = 0.01  # of the decomposition's residual
    weights: Literal["none", "grade"] = "none"  # grade: as values

    def __post_init__(self) -> None:
        if self.width < 1:
            raise UserError(f"width is {self.width}", hint="it is at least 1")
        if not 0 < self.tolerance < 1:
            raise UserError(f"tolerance is {self.tolerance}", hint="it lies between 0 and 1")


def fit_plain(data: Dataset, config: PlainConfig, run: Run) -> Iterator[Step]:
    """The minimiser of RG2, by one decomposition or by alternating least squares."""
    if config.solver == "als":
        yield from alternate("rg2-plain", make_plain, data, config, run)
        return
    rows = training_rows(data, config.weights, run.device)
    objective = rg2(rows, config.reg, comm=run.comm)
    total = sum_over_ranks(objective.query_weight.sum(), run.comm)
    total *= float(objective.candidate_weight.sum())
    yield from _fit("rg2-plain", objective, config.reg * total**0.5, config, run)


def fit_puresvd(data: Dataset, config: PureSvdConfig, run: Run) -> Iterator[Step]:
    objective = puresvd(training_rows(data, config.weights, run.device), run.comm)
    yield from _fit("puresvd", objective, 0.0, config, run)


def fold_in(model: Model, rows: Interactions) -> Tensor:
    """Vectors of new queries from their candidates, in closed form; [B, D]."""
    candidates = model.tensors["candidates"]
    rows = weighed(rows.to(candidates.device), model.config["weights"])
    if "fold_scale" in model.tensors:
        return _fold(model.method, from_tensors(model.tensors), rows)
    return folded(make_plain, PlainConfig(**model.config), candidates, rows)


PLAIN = Method(
    summary="softmax ranking loss to second order, as in the paper: its global optimum",
    config=PlainConfig,
    data_kind="interactions",
    fit=fit_plain,
    fold_in=fold_in,
    paper="rg2",
    distributed=True,
)
PURESVD = Method(
    summary="the truncated singular value decomposition of the pairs",
    config=PureSvdConfig,
    data_kind="interactions",
    fit=fit_puresvd,
    fold_in=fold_in,
    paper="cremonesi2010",
    distributed=True,
)


def _fit(
    name: str, objective: Objective, tau: float, config: PlainConfig | PureSvdConfig, run: Run
) -> Iterator[Step]:
    """A step per pass; the last has the model."""
    began, number, rows = perf_counter(), 0, objective.rows
    if run.resume is not None:
        number = int(run.resume["number"])
    shards = divide(rows, min(config.width, rows.n_candidates), run)
    tables = () if shards is None else ("space", "outside")
    target = Target(objective, run.memory_budget, shards)
    passes = decompose(target, config.width, run.rng, tolerance=config.tolerance, resume=run.resume)
    for found in passes:
        number += 1
        if found.vectors is None:
            seconds = perf_counter() - began
            share = expected_share(found.columns, config.width)
            state = found.state.copy
            yield Step(number, found.residual, seconds, None, state, False, share, divided=tables)
            began = perf_counter()
            continue
        solution = factors(objective, found.values, found.vectors, tau, shards=shards)
        queries = _fold(name, solution, rows, shards)
        n_pairs = sum_over_ranks(rows.n_pairs, run.comm)
        loss = value(objective, queries, solution.candidates, shards) / max(1, n_pairs)
        tensors = {"queries": queries, **to_tensors(solution)}
        notes = {"residual": found.residual, "columns": found.columns}
        model = Model(name, asdict(config), tensors, notes)
        yield Step(number, loss, perf_counter() - began, model, dict, final=True)


def _fold(name: str, solution: Factors, rows: Interactions, shards: Shards | None = None) -> Tensor:
    sizes = row_sizes(rows)
    if name == "puresvd":
        return fold(solution, rows, torch.ones_like(sizes), torch.zeros_like(sizes), shards)
    slope, power = target_line(sizes, rows.n_candidates, -0.5)
    return fold(solution, rows, slope, -power, shards)
