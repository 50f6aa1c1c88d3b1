"""Methods that compare what a query chose with all candidates, by gradient descent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from rankfold.losses.full import FULL_LOSSES
from rankfold.methods.gradient.model import (
    Encoding,
    model_of,
    open_model,
    sides_of,
    trained_encoder,
)
from rankfold.methods.pair_weights import training_rows
from rankfold.training.batches import QueryBatches, Rows
from rankfold.training.loop import Task, train
from rankfold.types import Dataset, FullLoss, Method, Run, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class FullConfig(Encoding):
    """A batch is of queries, each with all that it chose."""

    batch_size: int = 512
    optimiser: Literal["adam", "adamw", "sgd"] = "adam"  # every candidate has a gradient
    weight_decay: float = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyFullConfig(FullConfig):
    """Any loss over all candidates."""

    loss: Literal["softmax", "sparsemax", "rg2", "rgx"] = "softmax"


def fit(name: str, loss: FullLoss, data: Dataset, config: Any, run: Run) -> Iterator[Step]:
    """Train the encoder on queries with all that they chose."""
    rows = training_rows(data, config.weights, run.device)
    encoder = trained_encoder(data, rows, config, run)

    def losses(batch: Rows, _rng: torch.Generator) -> Tensor:
        both = encoder.of_queries(batch.queries), encoder.of_candidates(None)
        if config.precision == "bfloat16":
            both = both[0].bfloat16(), both[1].bfloat16()
        return loss(*both, batch.positives).float()

    task = Task(
        module=encoder,
        batches=QueryBatches(rows, config.batch_size, run.comm),
        losses=losses,
        export=lambda: model_of(name, config, encoder, data, rows),
        weights=lambda batch: batch.weights,
        sides=sides_of(encoder),
    )
    return train(task, config, run)


def method(
    name: str, loss: str | None, config: type[FullConfig], summary: str, paper: str
) -> Method:
    """A method from its loss; without one, it is a setting."""

    def start(data: Dataset, settings: Any, run: Run) -> Iterator[Step]:
        return fit(name, FULL_LOSSES[loss or settings.loss], data, settings, run)

    return Method(
        summary,
        config,
        "interactions",
        start,
        open=open_model,
        answers=("features",),
        paper=paper,
        distributed=True,
    )


FULL = {
    "softmax": method(
        "softmax",
        "softmax",
        FullConfig,
        "softmax over all candidates, exactly, without ever holding their scores",
        "bruch2019",
    ),
    "sparsemax": method(
        "sparsemax",
        "sparsemax",
        FullConfig,
        "sparsemax over all candidates, exactly: only close rivals push",
        "martins2016",
    ),
    "full": method("full", None, AnyFullConfig, "any loss over all candidates", ""),
}
