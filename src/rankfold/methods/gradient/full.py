"""Compare the choices of a query with all candidates, by gradient descent."""

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from rankfold.config import setting
from rankfold.losses.full import FULL_LOSSES
from rankfold.methods.gradient import model
from rankfold.methods.gradient.comparison import PAPER_SPACE, SPACE
from rankfold.methods.pair_weights import training_rows
from rankfold.training.batches import Rows
from rankfold.training.loop import Task, train
from rankfold.types import Batch, Dataset, FullLoss, Interactions, Method, Run, Step


class FullConfig(model.EncoderConfig):
    """Settings of ``softmax`` and ``sparsemax``. A batch has queries with all their choices."""

    batch_size: int | None = setting(
        None, at_least=1, help="queries in a batch; none: 32 to 512, by their number"
    )
    lr: float = 0.005
    optimiser: Literal["adam", "adamw", "sgd"] = setting(
        "adam", help="dense optimisers alone: every candidate has a gradient"
    )
    weight_decay: float | None = setting(
        None, at_least=0, help="weight decay; none: by the noise and the size of the data"
    )
    BATCHES: ClassVar[tuple[int, int]] = 32, 512
    DECAY: ClassVar[float] = 1.0

    def n_examples(self, _n_pairs: int, n_queries: int) -> int:
        return n_queries


class _AnyFullConfig(FullConfig):
    loss: str = setting("softmax", choices=FULL_LOSSES, help="the loss to minimise")


def fit(name: str, loss: FullLoss, data: Dataset, config: Any, run: Run) -> Iterator[Step]:
    """Train the encoder on queries with all their choices."""
    rows = training_rows(data, config.weights, run.device)
    config = config.for_data(rows, run.comm)
    encoder = model.trained_encoder(data, rows, config, run)

    def losses(batch: Rows | Batch, _rng: torch.Generator) -> Tensor:
        if isinstance(batch, Batch):
            queries, positives = encoder.encode_batch(batch), _one_each(batch, rows.n_candidates)
        else:
            queries, positives = encoder.encode_queries(batch.queries), batch.positives
        both = queries, encoder.encode_candidates(None)
        if config.precision == "bfloat16":
            both = both[0].bfloat16(), both[1].bfloat16()
        return loss(*both, positives).float()

    by_history = config.encoder == "history"
    task = Task(
        module=encoder,
        batches=model.query_batches(encoder, rows, config, run.comm),
        losses=losses,
        export=lambda: model.model_of(name, config, encoder, data, rows),
        weights=None if by_history else lambda batch: batch.weights,
        sides=model.sides_of(encoder),
        draws_elsewhere=model.has_dropout(encoder),
    )
    return train(task, config, run)


def _one_each(batch: Batch, n_candidates: int) -> Interactions:
    """The positive of each row of a batch."""
    offsets = torch.arange(len(batch.queries) + 1, device=batch.queries.device)
    return Interactions(offsets, batch.candidates.int(), None, n_candidates)


def method(
    name: str, loss: str | None, config: type[FullConfig], summary: str, **declared: Any
) -> Method:
    """A method from its loss; without one, the loss is a setting.

    ``declared``: further fields of ``Method``.
    """

    def start(data: Dataset, settings: Any, run: Run) -> Iterator[Step]:
        return fit(name, FULL_LOSSES[loss or settings.loss], data, settings, run)

    return model.gradient_method(summary, config, start, space=SPACE, **declared)


SOFTMAX = method(
    "softmax",
    "softmax",
    FullConfig,
    "softmax over all candidates, exactly, without ever holding their scores",
    paper="bruch2019",
    paper_space=PAPER_SPACE,
)
SPARSEMAX = method(
    "sparsemax",
    "sparsemax",
    FullConfig,
    "sparsemax over all candidates, exactly: only close rivals push",
    paper="martins2016",
    paper_space=PAPER_SPACE,
)
FULL = method("full", None, _AnyFullConfig, "any loss over all candidates")
