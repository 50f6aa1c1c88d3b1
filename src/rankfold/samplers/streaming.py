"""In-batch negatives whose popularity is estimated while training: G-Tower."""

from collections.abc import Mapping

import torch
from torch import Tensor

from rankfold.samplers.mixins import Whole
from rankfold.types import Batch, Drawn, Pool

SIZES = (4993, 4999, 5003, 5009, 5011)  # of the hash arrays


class Streaming(Whole):
    """Estimates how often a candidate occurs from the steps between its occurrences [yi2019].

    Candidate y has one cell in each of five arrays, y mod size. In step t = 1, 2, .. each cell that
    the batch touches, once however often it does, moves by::

        delta <- (1 - a) delta + a (t - last),    last <- t

    from delta = 1, last = 0, and p(y) = 1 / max delta over y's five cells: of collisions, which
    make delta too small, the mildest counts. p is the chance that a step has y at all, so for all
    but the most popular B times pop(y): q = p / B.

    The estimate for a batch includes its own update, as in the authors' code; ``propose``
    computes it, ``observe`` keeps it.
    """

    def __init__(self, device: torch.device, rate: float = 1e-4) -> None:
        self.rate = rate  # a
        self.step = torch.zeros((), dtype=torch.int64)  # t of the last step
        self.sizes = torch.tensor(SIZES, device=device)
        self.starts = self.sizes.cumsum(0) - self.sizes
        self.last = torch.zeros(sum(SIZES), dtype=torch.int64, device=device)  # the arrays in a row
        self.delta = torch.ones(sum(SIZES), dtype=torch.float64, device=device)

    def propose(self, batch: Batch, rng: torch.Generator) -> Pool:  # noqa: ARG002
        _, delta = self._updated(batch)
        log_q = -(delta.amax(dim=1) * len(batch.candidates)).log().float()
        return Pool(batch.candidates, log_q, log_q, holds_batch=True)

    def observe(self, batch: Batch, pool: Pool, drawn: Drawn | None) -> None:  # noqa: ARG002
        cells, delta = self._updated(batch)
        self.step += 1
        self.delta[cells] = delta  # where a cell comes twice, both say the same
        self.last[cells] = int(self.step)

    def _updated(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The cells of the batch's candidates and their delta after this step; both [B, 5]."""
        cells = batch.candidates[:, None] % self.sizes + self.starts
        gap = (int(self.step) + 1 - self.last[cells]).double()
        return cells, (1 - self.rate) * self.delta[cells] + self.rate * gap

    def state(self) -> dict[str, Tensor]:
        return {
            "step": self.step.clone(),
            "last": self.last.clone(),
            "delta": self.delta.clone(),
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.step.copy_(state["step"])
        self.last.copy_(state["last"])
        self.delta.copy_(state["delta"])
