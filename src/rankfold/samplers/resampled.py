"""In-batch negatives, picked again by how hard they are: BIR."""

import torch
from torch import Tensor

from rankfold.samplers.defaults import Stateless
from rankfold.samplers.drawing import draw_times
from rankfold.samplers.in_batch import in_batch
from rankfold.types import Batch, Drawn, Pool


class Bir(Stateless):
    """Batch importance resampling [chen2022]: each query picks ``draws`` of the batch's candidates.

    ``draws`` is the configured batch size in the paper, in a short last batch too.
    """

    def __init__(self, log_pop: Tensor, draws: int) -> None:
        self.log_pop = log_pop
        self.draws = draws

    def propose(self, batch: Batch, rng: torch.Generator) -> Pool:  # noqa: ARG002
        return in_batch(batch, self.log_pop)

    def resample(self, scores: Tensor, pool: Pool, valid: Tensor, rng: torch.Generator) -> Drawn:
        log_w = log_weights(scores, pool.log_q, valid)
        times = draw_times(log_w, self.draws, rng)
        return Drawn(times, log_w, self.draws, (len(pool.ids),), (1.0,))


def log_weights(scores: Tensor, log_pop: Tensor, valid: Tensor) -> Tensor:
    """The log of w, with which importance resampling picks a column; [B, C].

    With V the valid columns of a query, whose candidates came into the pool by popularity::

        w(j|x) = exp(s_xj) / pop(j)  /  sum_{i in V_x} exp(s_xi) / pop(i)      for j in V_x, else 0

    All -inf for a query without a valid column.
    """
    logits = (scores.detach() - log_pop).masked_fill_(~valid, -torch.inf)
    log_z = logits.logsumexp(dim=1, keepdim=True)
    return logits.sub_(log_z.masked_fill_(log_z == -torch.inf, 0.0))
