"""The training of ``cba`` as it is, with somebody looking on before each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.methods.ordinal import cba, training
from rankfold.methods.ordinal.cba import CbaConfig
from rankfold.methods.ordinal.training import (
    MAX_BLOCK_ROWS,
    BatchLoss,
    FitContext,
    GradedBatch,
    Recipe,
)
from rankfold.samplers.rank_cache import RankCache
from rankfold.training.loop import seed_of
from rankfold.types import Dataset, Run, Step

Look = Callable[[GradedBatch], None]
"""Told of each batch before its step: the parameters are those that the batch was encoded with."""


class Fit(NamedTuple):
    """What is to be trained."""

    data: Dataset
    config: CbaConfig
    run: Run

    @property
    def n_rows(self) -> int:
        return len(self.data.graded("train"))

    def sample(self, size: int, purpose: str) -> Tensor:
        """Some of the training rows, by the seed, ascending; all, where there are no more."""
        rng = torch.Generator().manual_seed(seed_of(self.run, purpose))
        order = torch.randperm(self.n_rows, generator=rng)[:size]
        return order.sort().values.to(self.run.device)


def watch(fit: Fit, begin: Callable[[FitContext, RankCache, Tensor], Look]) -> Iterator[Step]:
    """Train; ``begin`` is called once: what is trained, its cache, and the rows that fill it."""

    def rule(parts: FitContext) -> BatchLoss:
        drawn_alike = parts._replace(rng=parts.rng.clone_state())
        first = torch.cat(cba.first_rows(drawn_alike))
        made = cba.rank_weighted_loss(parts)
        assert isinstance(made.memory, RankCache)
        look = begin(parts, made.memory, first)

        def losses(seen: GradedBatch) -> Tensor:
            look(seen)
            return made.losses(seen)

        return BatchLoss(losses, made.memory)

    recipe = Recipe(cba.outputs, rule, cba.score)
    return training.fit("cba", recipe, fit.data, fit.config, fit.run)


@torch.no_grad()
def encode(parts: FitContext, rows: Tensor) -> Tensor:
    """The vectors of training rows by the encoder as it is, nothing dropped; [n, D]."""
    found = [parts.rows.vectors(parts.module, some) for some in rows.split(MAX_BLOCK_ROWS)]
    return torch.cat(found).double()


def score_all(parts: FitContext) -> Tensor:
    """w.g(x) of every training row; [n]. Vectors are held for a block at a time."""
    head = cba.score_weights(parts).double()
    rows = torch.arange(len(parts.rows), device=head.device)
    return torch.cat([encode(parts, some) @ head for some in rows.split(MAX_BLOCK_ROWS)])
