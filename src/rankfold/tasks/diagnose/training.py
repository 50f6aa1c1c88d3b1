"""The unchanged training of ``cba``, with a callback before each step."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.losses.low_fpr import above, default_sigma, exact_ranks
from rankfold.methods.ordinal import cba, training
from rankfold.methods.ordinal.cba import CbaConfig
from rankfold.methods.ordinal.training import (
    MAX_BLOCK_ROWS,
    BatchLoss,
    FitContext,
    GradedBatch,
)
from rankfold.samplers.cba_cache import CrossBatchCache
from rankfold.training.loop import seed_of
from rankfold.types import Dataset, Run, Step

Observe = Callable[[GradedBatch], None]
"""Called with each batch before its step, with the parameters that encoded it."""


class DiagnosedTraining(NamedTuple):
    """The data, settings and run of a training."""

    data: Dataset
    config: CbaConfig
    run: Run

    @property
    def n_rows(self) -> int:
        return len(self.data.graded("train"))

    @property
    def n_steps(self) -> int:
        return len(training.batches_of(self.n_rows, self.config)) * self.n_epochs

    @property
    def n_epochs(self) -> int:
        images = self.data.graded("train").images is not None
        return training.epochs_of(self.config, self.n_rows, images=images)

    def sample(self, size: int, purpose: str) -> Tensor:
        """At most ``size`` training rows, drawn by the seed, ascending."""
        rng = torch.Generator().manual_seed(seed_of(self.run, purpose))
        order = torch.randperm(self.n_rows, generator=rng)[:size]
        return order.sort().values.to(self.run.device)


def train_observed(
    fit: DiagnosedTraining, begin: Callable[[FitContext, CrossBatchCache, Tensor], Observe]
) -> Iterator[Step]:
    """Train; ``begin`` is called once with the model, its cache and the rows that fill it."""

    def rule(parts: FitContext) -> BatchLoss:
        same_draws = parts._replace(rng=parts.rng.clone_state())
        first = torch.cat(cba.first_rows(same_draws))
        made = cba.rank_weighted_loss(parts)
        assert isinstance(made.memory, CrossBatchCache)
        observe = begin(parts, made.memory, first)

        def losses(seen: GradedBatch) -> Tensor:
            observe(seen)
            return made.losses(seen)

        return BatchLoss(losses, made.memory)

    recipe = replace(cba.recipe_of(vars(fit.config)), loss=rule)
    return training.fit("cba", recipe, fit.data, fit.config, fit.run)


def track_ranks(
    fit: DiagnosedTraining,
    sizes: tuple[int, int],
    ranks: Callable[[Tensor], Tensor],
    at: Callable[[int], bool],
    progress: Callable[[Step], None],
) -> tuple[FitContext, Tensor]:
    """Train, and record the ranks of some rows among others before the steps ``at``.

    Args:
        fit: the training.
        sizes: how many rows are followed, and how many they are ranked among.
        ranks: what to record of the ranks by threshold [G - 1, n].
        at: whether to record before a step, counted from 0; after the last step it is asked again.
        progress: called after each epoch.

    Returns the trained parts and what was recorded, stacked.
    """
    rows, others = fit.sample(sizes[0], "followed rows"), fit.sample(sizes[1], "others")
    trained: list[FitContext] = []
    recorded: list[Tensor] = []
    steps = count()

    def record() -> None:
        if at(next(steps)):
            recorded.append(ranks(ranks_among(trained[0], rows, others)))

    def begin(parts: FitContext, _queues: CrossBatchCache, _first: Tensor) -> Observe:
        trained.append(parts)
        return lambda _seen: record()

    for step in train_observed(fit, begin):
        progress(step)
    record()
    return trained[0], torch.stack(recorded).cpu()


def sigma_of(parts: FitContext) -> float:
    """The width of the Gaussian weights in use, the default if none is set."""
    grades = parts.rows.grades
    lowest = int((grades == grades.min()).sum())
    width: float = parts.config.sigma or default_sigma(lowest, parts.config.fpr)
    return width


@torch.no_grad()
def encode(parts: FitContext, rows: Tensor) -> Tensor:
    """The vectors of training rows without dropout, as far as the score reads them; [n, D]."""
    blocks = [parts.rows.vectors(parts.module, some) for some in rows.split(MAX_BLOCK_ROWS)]
    return torch.cat(blocks)[:, cba.start_of(parts.module.head) :].double()


def ranks_among(parts: FitContext, rows: Tensor, others: Tensor) -> Tensor:
    """The rank of each row among the negatives of ``others``, by threshold; [G - 1, n]."""
    both = torch.cat([rows, others])
    scores = encode(parts, both) @ cba.score_weights(parts).double()
    negative = ~above(parts.rows.grades[both], parts.n_grades)
    negative[:, : len(rows)] = False
    return torch.stack([exact_ranks(scores, side)[: len(rows)] for side in negative])


def score_all(parts: FitContext) -> Tensor:
    """w.g(x) of every training row, in blocks; [n]."""
    head = cba.score_weights(parts).double()
    rows = torch.arange(len(parts.rows), device=head.device)
    return torch.cat([encode(parts, some) @ head for some in rows.split(MAX_BLOCK_ROWS)])
