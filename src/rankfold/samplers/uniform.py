"""Uniform negatives, drawn for each query or for a whole batch."""

import math
from dataclasses import dataclass

import torch

from rankfold.samplers.mixins import Stateless, WholePool
from rankfold.types import Batch, Pool


@dataclass(frozen=True, slots=True)
class Uniform(WholePool, Stateless):
    """``negatives`` candidates, each with q = 1/N; positives may be among them."""

    n_candidates: int
    negatives: int
    shared: bool = False  # all queries of a batch have the same: scores are one matrix product

    def propose(self, batch: Batch, rng: torch.Generator) -> Pool:
        size, device = len(batch.candidates), batch.candidates.device
        shape = (self.negatives,) if self.shared else (size, self.negatives)
        ids = torch.randint(self.n_candidates, shape, generator=rng, device=device)
        log_q = torch.tensor(-math.log(self.n_candidates), device=device)
        return Pool(ids, log_q.expand(shape), log_q.expand(size))
