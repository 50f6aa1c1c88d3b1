"""Uniform negatives, drawn for each query."""

import math

import torch

from rankfold.samplers.mixins import Stateless, WholePool
from rankfold.types import Batch, Pool


class Uniform(WholePool, Stateless):
    """``negatives`` candidates per query, each with q = 1/N; positives may be among them."""

    def __init__(self, n_candidates: int, negatives: int) -> None:
        self.n_candidates = n_candidates
        self.negatives = negatives

    def propose(self, batch: Batch, rng: torch.Generator) -> Pool:
        device = batch.candidates.device
        shape = (len(batch.candidates), self.negatives)
        ids = torch.randint(self.n_candidates, shape, generator=rng, device=device)
        log_q = torch.tensor(-math.log(self.n_candidates), device=device)
        return Pool(ids, log_q.expand(shape), log_q.expand(len(ids)))
