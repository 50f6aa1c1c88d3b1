"""Mixed negatives: the batch's candidates and uniform ones (MNS)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rankfold.samplers.mixins import Stateless, WholePool
from rankfold.types import Batch, Pool


@dataclass(frozen=True, slots=True)
class Mixed(WholePool, Stateless):
    """Mixed negative sampling [yang2020]: the batch's B candidates, then n uniform ones, shared.

    A column chosen at random holds y with::

        q(y) = r pop(y) + (1 - r)/N,    r = B / (B + n), the in-batch share

    for positives too. In a short last batch B is smaller, while n stays.
    """

    log_pop: Tensor
    negatives: int  # n

    def propose(self, batch: Batch, rng: torch.Generator) -> Pool:
        n_candidates, device = len(self.log_pop), batch.candidates.device
        drawn = torch.randint(n_candidates, (self.negatives,), generator=rng, device=device)
        ids = torch.cat([batch.candidates, drawn])
        share = len(batch.candidates) / len(ids)
        uniform = torch.tensor((1 - share) / n_candidates, device=device).log()
        log_q = torch.logaddexp(self.log_pop[ids] + math.log(share), uniform)
        return Pool(ids, log_q, log_q[: len(batch.candidates)], holds_batch=True)
