"""Uniform negatives that a batch shares: the scores are one matrix product."""

import math

import torch

from rankfold.samplers.mixins import Stateless, WholePool
from rankfold.types import Batch, Pool


class SharedUniform(WholePool, Stateless):
    """``negatives`` candidates, the same for every query of the batch, each with q = 1/N."""

    def __init__(self, n_candidates: int, negatives: int) -> None:
        self.n_candidates = n_candidates
        self.negatives = negatives

    def propose(self, batch: Batch, rng: torch.Generator) -> Pool:
        device = batch.candidates.device
        ids = torch.randint(self.n_candidates, (self.negatives,), generator=rng, device=device)
        log_q = torch.tensor(-math.log(self.n_candidates), device=device)
        return Pool(ids, log_q.expand(self.negatives), log_q.expand(len(batch.candidates)))
