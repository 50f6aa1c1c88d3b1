"""RG2 exactly as the paper states it, by one decomposition or by alternating least squares."""

from collections.abc import Iterator
from functools import partial
from typing import ClassVar, Literal

from torch import Tensor

from rankfold.config import setting
from rankfold.distributed.collectives import sum_over_ranks
from rankfold.methods.als import alternating
from rankfold.methods.closed_form import spectral
from rankfold.methods.pair_weights import training_rows, weighted_pairs
from rankfold.objectives.rg import rg2, row_sizes, target_line
from rankfold.solvers.shards import Shards
from rankfold.types import Comm, Dataset, Interactions, Method, Model, Opened, Range, Run, Step


class PlainConfig(alternating.AlsConfig):
    """Settings of ``rg2-plain``; those of sweeps are used by solver=als alone."""

    reg: float = setting(0.3, at_least=0, help="regularisation (lambda)")
    solver: Literal["spectral", "als"] = setting("spectral", help="one decomposition, or sweeps")
    tolerance: float = setting(1e-4, above=0, below=1, help="largest residual at the end")
    used_with: ClassVar = {
        "tolerance": ("solver", "spectral"),
        **dict.fromkeys(("sweeps", "inner", "steps", "start"), ("solver", "als")),
    }


def fit(data: Dataset, config: PlainConfig, run: Run) -> Iterator[Step]:
    """The minimiser of RG2."""
    if config.solver == "als":
        yield from alternating.alternate("rg2-plain", _problem, data, config, run)
        return
    rows = training_rows(data, config.weights, run.device)
    objective = rg2(rows, config.reg, comm=run.comm)
    total = sum_over_ranks(objective.query_weight.sum(), run.comm)
    total *= float(objective.candidate_weight.sum())
    yield from spectral.solve("rg2-plain", objective, config.reg * total**0.5, _fold, config, run)


def _problem(rows: Interactions, config: PlainConfig, comm: Comm) -> alternating.LeastSquares:
    return alternating.exact(rg2(rows, config.reg, comm=comm))


def _fold_in(model: Model, rows: Interactions) -> Tensor:
    """Vectors of new queries from their candidates, in closed form; [B, D]."""
    candidates = model.tensors["candidates"]
    rows = weighted_pairs(rows.to(candidates.device), model.config["weights"])
    if "fold_scale" in model.tensors:
        return _fold(spectral.from_tensors(model.tensors), rows)
    return alternating.folded(_problem, PlainConfig(**model.config), candidates, rows)


def _parts(model: Model, rows: Interactions, ids: Tensor) -> Tensor:
    """What each pair of one history adds to the scores of the candidates ``ids``; [nnz, K]."""
    rows = weighted_pairs(rows, model.config["weights"])
    slope, _ = target_line(row_sizes(rows), rows.n_candidates, -0.5)
    return spectral.fold_parts(spectral.from_tensors(model.tensors), rows, slope, ids)


def _finalize(model: Model, rows: Interactions, run: Run) -> Model:
    """Query vectors that fit the candidates, which sweeps go beyond."""
    if "fold_scale" in model.tensors:
        return model
    return alternating.finalize(_problem, PlainConfig, model, rows, run)


METHOD = Method(
    summary="softmax ranking loss to second order, as in the paper: its global optimum",
    config=PlainConfig,
    data_kind="interactions",
    fit=fit,
    open=lambda model: Opened(
        histories=partial(_fold_in, model),
        parts=partial(_parts, model) if "fold_scale" in model.tensors else None,
    ),
    answers=("histories",),
    paper="rg2",
    own_threads=True,
    finalize=_finalize,
    distributed=True,
    space={"reg": Range(0.01, 3.0, log=True)},
    paper_space={"reg": alternating.RG_GRID},
    per_candidate=spectral.PER_CANDIDATE,
)


def _fold(solution: spectral.Factors, rows: Interactions, shards: Shards | None = None) -> Tensor:
    slope, power = target_line(row_sizes(rows), rows.n_candidates, -0.5)
    return spectral.fold(solution, rows, slope, -power, shards)
