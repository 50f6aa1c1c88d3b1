"""In-batch negatives with streaming frequency estimation: G-Tower."""

from collections.abc import Mapping
from math import isqrt

import torch
from torch import Tensor

from rankfold.samplers.mixins import WholePool
from rankfold.types import Batch, Drawn, Pool

HASH_SIZES = (4993, 4999, 5003, 5009, 5011)  # of the five arrays
RATE = 1e-4  # a


def hash_sizes(size: int | None) -> tuple[int, ...]:
    """The sizes of the five arrays: the published ones, or the five primes from ``size`` on.

    Two candidates that share a cell of one array then share few others.
    """
    if size is None:
        return HASH_SIZES
    sizes: list[int] = []
    while len(sizes) < len(HASH_SIZES):
        if size > 1 and all(size % divisor for divisor in range(2, isqrt(size) + 1)):
            sizes.append(size)
        size += 1
    return tuple(sizes)


class Streaming(WholePool):
    """Estimates a candidate's frequency from the steps between its occurrences [yi2019].

    Candidate y has one cell in each of five arrays, y mod size. In step t = 1, 2, .. each cell that
    the batch touches moves once by::

        delta <- (1 - a) delta + a (t - last),    last <- t

    from delta = 1, last = 0, and p(y) = 1 / max delta over y's five cells: collisions make delta
    too small, and the maximum is the least affected. p is the probability that a step contains y,
    which is B pop(y) except for the most popular candidates: q = p / B.

    The estimate for a batch includes its own update, as in the authors' code: ``propose`` computes
    it, ``observe`` stores it.

    A cell forgets its start only after some 1/a steps, 10,000 as published: before that the
    corrections of all candidates are nearly equal. p is at most 1, so candidates in every batch
    cannot be distinguished.
    """

    def __init__(
        self, device: torch.device, rate: float = RATE, sizes: tuple[int, ...] = HASH_SIZES
    ) -> None:
        self.rate = rate  # a
        self.step = torch.zeros((), dtype=torch.int64)  # t of the last step
        self.sizes = torch.tensor(sizes, device=device)
        self.starts = self.sizes.cumsum(0) - self.sizes
        cells = sum(sizes)  # the arrays in a row
        self.last = torch.zeros(cells, dtype=torch.int64, device=device)
        self.delta = torch.ones(cells, dtype=torch.float64, device=device)

    def propose(self, batch: Batch, rng: torch.Generator) -> Pool:  # noqa: ARG002
        _, delta = self._updated(batch)
        log_q = -(delta.amax(dim=1) * len(batch.candidates)).log().float()
        return Pool(batch.candidates, log_q, log_q, holds_batch=True)

    def observe(self, batch: Batch, pool: Pool, drawn: Drawn | None) -> None:  # noqa: ARG002
        cells, delta = self._updated(batch)
        self.step += 1
        self.delta[cells] = delta  # repeated cells have equal values
        self.last[cells] = int(self.step)

    def _updated(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The cells of the batch's candidates and their delta after this step; both [B, 5]."""
        cells = batch.candidates[:, None] % self.sizes + self.starts
        gap = (int(self.step) + 1 - self.last[cells]).double()
        return cells, (1 - self.rate) * self.delta[cells] + self.rate * gap

    def state(self) -> dict[str, Tensor]:
        return {"step": self.step.clone(), "last": self.last.clone(), "delta": self.delta.clone()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.step.copy_(state["step"])
        self.last.copy_(state["last"])
        self.delta.copy_(state["delta"])
