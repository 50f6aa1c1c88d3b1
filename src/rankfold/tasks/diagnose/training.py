"""The unchanged training of ``cba``, with a callback before each step."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.losses.low_fpr import default_sigma
from rankfold.methods.ordinal import cba, training
from rankfold.methods.ordinal.cba import CbaConfig
from rankfold.methods.ordinal.training import (
    MAX_BLOCK_ROWS,
    BatchLoss,
    FitContext,
    GradedBatch,
)
from rankfold.samplers.cross_batch_cache import CrossBatchCache
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

    recipe = replace(cba.RECIPE, loss=rule)
    return training.fit("cba", recipe, fit.data, fit.config, fit.run)


def sigma_of(parts: FitContext) -> float:
    """The width of the Gaussian weights in use, the default if none is set."""
    grades = parts.rows.grades
    lowest = int((grades == grades.min()).sum())
    width: float = parts.config.sigma or default_sigma(lowest, parts.config.fpr)
    return width


@torch.no_grad()
def encode(parts: FitContext, rows: Tensor) -> Tensor:
    """The vectors of training rows without dropout; [n, D]."""
    blocks = [parts.rows.vectors(parts.module, some) for some in rows.split(MAX_BLOCK_ROWS)]
    return torch.cat(blocks).double()


def score_all(parts: FitContext) -> Tensor:
    """w.g(x) of every training row, in blocks; [n]."""
    head = cba.score_weights(parts).double()
    rows = torch.arange(len(parts.rows), device=head.device)
    return torch.cat([encode(parts, some) @ head for some in rows.split(MAX_BLOCK_ROWS)])
