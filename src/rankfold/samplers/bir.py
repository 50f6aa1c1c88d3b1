"""BIR: in-batch negatives, resampled by how hard they are."""

from dataclasses import dataclass

import torch
from torch import Tensor

from rankfold.samplers.in_batch import in_batch
from rankfold.samplers.mixins import Stateless
from rankfold.samplers.resampling import Draw, systematic
from rankfold.types import Batch, Drawn, Picks, Pool


@dataclass(frozen=True, slots=True)
class Bir(Stateless):
    """Batch importance resampling [chen2022]: each query picks ``draws`` of the batch's candidates.

    ``draws`` is the configured batch size in the paper, in a short last batch too.
    """

    log_pop: Tensor
    draws: int
    draw: Draw = systematic

    def propose(self, batch: Batch, rng: torch.Generator) -> Pool:  # noqa: ARG002
        return in_batch(batch, self.log_pop)

    def resample(
        self, scores: Tensor, pool: Pool, valid: Tensor | None, rng: torch.Generator
    ) -> Drawn:
        weights = pick_weights(scores, pool.log_q, valid)
        times = self.draw(weights, self.draws, rng, pool.own)
        return Drawn((Picks(times, weights, 1.0),), self.draws)


def pick_weights(scores: Tensor, log_pop: Tensor, valid: Tensor | None) -> Tensor:
    """w, the probability that importance resampling picks a column; [B, C].

    With V the valid columns of a query, whose candidates are in the pool by popularity::

        w(j|x) = exp(s_xj) / pop(j)  /  sum_{i in V_x} exp(s_xi) / pop(i)      for j in V_x, else 0

    All 0 for a query without a valid column.
    """
    logits = scores.detach() - log_pop
    if valid is None:
        return logits.softmax(dim=1)
    weights = logits.masked_fill_(~valid, -torch.inf).softmax(dim=1)
    return weights.masked_fill_(~valid.any(dim=1, keepdim=True), 0.0)
