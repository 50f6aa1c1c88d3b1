"""PureSVD: the best approximation of the pairs themselves; [cremonesi2010]."""

from collections.abc import Iterator
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from rankfold.config import Settings, setting
from rankfold.methods.closed_form import spectral
from rankfold.methods.pair_weights import training_rows, weighted_pairs
from rankfold.objectives.implicit import puresvd
from rankfold.objectives.rg import row_sizes
from rankfold.solvers.shards import Shards
from rankfold.types import Dataset, Interactions, Method, Model, Opened, Run, Step


class PureSvdConfig(Settings):
    width: int = setting(64, at_least=1, help="length of the vectors")
    tolerance: float = setting(0.01, above=0, below=1, help="largest residual at the end")
    weights: Literal["none", "grade"] = setting("none", help="grade: grades are the values")


def fit(data: Dataset, config: PureSvdConfig, run: Run) -> Iterator[Step]:
    """The truncated singular value decomposition of the pairs."""
    objective = puresvd(training_rows(data, config.weights, run.device), run.comm)
    yield from spectral.solve("puresvd", objective, 0.0, _fold, config, run)


def _fold_in(model: Model, rows: Interactions) -> Tensor:
    """Vectors of new queries from their candidates, in closed form; [B, D]."""
    rows = weighted_pairs(rows.to(model.tensors["candidates"].device), model.config["weights"])
    return _fold(spectral.from_tensors(model.tensors), rows)


def _parts(model: Model, rows: Interactions, ids: Tensor) -> Tensor:
    """What each pair of one history adds to the scores of the candidates ``ids``; [nnz, K]."""
    rows = weighted_pairs(rows, model.config["weights"])
    return spectral.fold_parts(
        spectral.from_tensors(model.tensors), rows, torch.ones_like(row_sizes(rows)), ids
    )


METHOD = Method(
    summary="the truncated singular value decomposition of the pairs",
    config=PureSvdConfig,
    data_kind="interactions",
    fit=fit,
    open=lambda model: Opened(histories=partial(_fold_in, model), parts=partial(_parts, model)),
    answers=("histories",),
    paper="cremonesi2010",
    own_threads=True,
    distributed=True,
    per_candidate=spectral.PER_CANDIDATE,
)


def _fold(solution: spectral.Factors, rows: Interactions, shards: Shards | None = None) -> Tensor:
    sizes = row_sizes(rows)
    return spectral.fold(solution, rows, torch.ones_like(sizes), torch.zeros_like(sizes), shards)
