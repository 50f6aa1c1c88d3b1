"""Popularity of candidates, and negatives drawn by popularity."""

from typing import Literal

import torch
from torch import Tensor

from rankfold.samplers.alias import alias_table, draw
from rankfold.samplers.mixins import Stateless, WholePool
from rankfold.types import Batch, Pool

PopularityMode = Literal["count", "log", "power"]


def popularity(counts: Tensor, mode: PopularityMode) -> Tensor:
    """pop, the share of each candidate in all choices, for sampling and corrections; sums to 1.

    With c = max(count, 1), since a candidate without choices would get an infinite correction::

        pop in proportion to   c ("count"),   log(1 + c) ("log"),   c^.75 ("power")

    Args:
        counts: [N], how many queries chose each candidate.
        mode: which of the three.

    Returns:
        [N] float64.
    """
    chosen = counts.clamp(min=1).double()
    weight = {"count": chosen, "log": chosen.log1p(), "power": chosen**0.75}[mode]
    return weight / weight.sum()


class Popularity(WholePool, Stateless):
    """``negatives`` candidates per query, each with q = its probability."""

    def __init__(self, probabilities: Tensor, negatives: int) -> None:
        self.table = alias_table(probabilities.double())
        self.log_q = probabilities.double().log().float()
        self.negatives = negatives

    def propose(self, batch: Batch, rng: torch.Generator) -> Pool:
        ids = draw(self.table, (len(batch.candidates), self.negatives), rng)
        return Pool(ids, self.log_q[ids], self.log_q[batch.candidates])
