"""In-batch negatives: the candidates of the batch, for all of its queries."""

from dataclasses import dataclass

import torch
from torch import Tensor

from rankfold.samplers.mixins import Stateless, WholePool
from rankfold.types import Batch, Pool


def in_batch(batch: Batch, log_pop: Tensor) -> Pool:
    """The candidates of the batch as a pool.

    Pairs are drawn uniformly, so a column holds y with q = pop(y) by count.
    """
    log_q = log_pop[batch.candidates]
    return Pool(batch.candidates, log_q, log_q, holds_batch=True)


@dataclass(frozen=True, slots=True)
class InBatch(WholePool, Stateless):
    """SSL and SSL-Pop of [chen2022]."""

    log_pop: Tensor  # [N], the log of the popularity

    def propose(self, batch: Batch, rng: torch.Generator) -> Pool:  # noqa: ARG002
        return in_batch(batch, self.log_pop)
