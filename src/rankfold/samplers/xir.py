"""XIR: negatives resampled from the batch and from a cache of earlier hard negatives."""

from collections.abc import Mapping

import torch
from torch import Tensor

from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.samplers.bir import pick_weights
from rankfold.samplers.resampling import Draw, draw, systematic
from rankfold.types import Batch, Comm, Drawn, Picks, Pool


class Xir:
    """Cross-batch importance resampling [chen2022].

    The pool is the batch's candidates followed by a cache of ``cache_size`` ids. Each query picks
    draws/2 of the former (group 0, share 1 - lam) and as many of the latter (group 1, share lam),
    both with the weights of BIR. In the paper the cache and the draws are as many as the configured
    batch. After each step::

        o_y += how often y was picked, by all queries and in both groups      (o_y = 1 at the start)
        the next cache = cache_size draws with replacement of the distinct candidates
                         picked in this step, in proportion to o_y

    The first cache is uniform, as if every candidate had been picked once. The cache is drawn in
    the next ``propose``, so that all randomness comes from its ``rng``; the state is o and the
    distinct candidates. A step without picks changes neither. All processes have the same cache:
    picks are counted over the queries of all.
    """

    def __init__(
        self,
        log_pop: Tensor,
        cache_size: int,
        lam: float,
        draw: Draw = systematic,
        comm: Comm = SINGLE_PROCESS,
        *,
        draws: int | None = None,
    ) -> None:
        """``draws``: picks per query in both halves; None: as many as the cache has ids."""
        self.log_pop = log_pop  # [N]
        self.cache_size = cache_size
        self.shares = (1 - lam, lam)
        self.draw = draw
        self.comm = comm
        self.draws = max((draws or cache_size) // 2, 1)
        self.occurrences = torch.ones_like(log_pop, dtype=torch.int64)  # o
        self.distinct = torch.arange(len(log_pop), device=log_pop.device)

    def propose(self, batch: Batch, rng: torch.Generator) -> Pool:
        weights = self.occurrences[self.distinct].double()
        cache = self.distinct[draw(weights, self.cache_size, rng)]
        ids = torch.cat([batch.candidates, cache])
        log_q = self.log_pop[ids]
        return Pool(ids, log_q, log_q[: len(batch.candidates)], holds_batch=True)

    def resample(
        self, scores: Tensor, pool: Pool, valid: Tensor | None, rng: torch.Generator
    ) -> Drawn:
        border = len(pool.ids) - self.cache_size
        groups = []
        for part, share in zip((slice(border), slice(border, None)), self.shares, strict=True):
            valid_part = None if valid is None else valid[:, part]
            weights = pick_weights(scores[:, part], pool.log_q[part], valid_part)
            groups.append(Picks(self.draw(weights, self.draws, rng, pool.own), weights, share))
        return Drawn(tuple(groups), self.draws)

    def observe(self, batch: Batch, pool: Pool, drawn: Drawn | None) -> None:
        if drawn is None:
            return
        exact = torch.float32 if self.draws * len(batch.queries) < 2**24 else torch.float64
        times = torch.cat([group.times.sum(dim=0, dtype=exact) for group in drawn.groups]).long()
        times = self.comm.sum(times)
        picked = pool.ids[times > 0].unique()
        if len(picked):
            self.occurrences.index_add_(0, pool.ids, times)
            self.distinct = picked

    def state(self) -> dict[str, Tensor]:
        return {"occurrences": self.occurrences.clone(), "distinct": self.distinct.clone()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.occurrences.copy_(state["occurrences"])
        self.distinct = state["distinct"].to(self.occurrences.device, copy=True)
