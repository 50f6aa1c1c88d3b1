"""A table with a row per candidate or per query whose rows are divided among processes."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rankfold.types import Comm, OwnRows

Allocate = Callable[[tuple[int, int], torch.dtype], Tensor]
"""``(shape, dtype) -> an empty tensor`` on disk."""


class TableShard:
    """The own rows of a table, and access to the rows of other processes.

    ``batch_candidates`` is set before each batch: ascending, the same on all processes.
    """

    def __init__(self, size: int, comm: Comm, memory_budget: int) -> None:
        self.size, self.comm, self.memory_budget = size, comm, memory_budget
        self.start, self.stop = comm.share(size)
        self.batch_candidates: Tensor | None = None

    def look_up(self, table: nn.Embedding, rows: Tensor) -> Tensor:
        """Vectors of some candidates of the batch; [...] -> [..., D]."""
        if self.batch_candidates is None:
            vectors: Tensor = table(rows - self.start)
            return vectors
        places = torch.searchsorted(self.batch_candidates, rows)
        return self.bring(self.batch_candidates, table)[places]

    def bring(self, rows: Tensor, encode: Callable[[Tensor], Tensor]) -> Tensor:
        """The vectors of rows [n], encoded by their owners, on all processes; [n, D].

        All processes pass the same rows. ``encode`` gets the own ones, counted from ``start``.
        """
        mine, own = self.here(rows)
        return self.to_all(encode(mine), own)

    def here(self, rows: Tensor) -> tuple[Tensor, OwnRows | None]:
        """The own ones of some rows, counted from ``start``; None: all are own."""
        if self.comm.size == 1:
            return rows, None
        own = self.find(rows)
        return rows[own.places] - self.start, own

    def to_all(self, vectors: Tensor, own: OwnRows | None) -> Tensor:
        """The vectors of all rows, on all processes, from those of each process's own rows."""
        if own is None:
            return vectors
        every: Tensor = GatherRows.apply(vectors, own.places, own.total, self.comm)  # type: ignore[no-untyped-call]
        return every

    def find(self, rows: Tensor) -> OwnRows:
        """Which of some rows are own."""
        return OwnRows(((rows >= self.start) & (rows < self.stop)).nonzero()[:, 0], len(rows))

    def whole(
        self, encode: Callable[[Tensor], Tensor], device: torch.device, in_file: Allocate
    ) -> Tensor:
        """The vectors of all candidates, on all processes; in a file if they exceed the budget."""
        self.batch_candidates = None
        longest = -(-self.size // self.comm.size)
        width = encode(torch.arange(self.start, self.start, device=device)).shape[1]
        shape = (self.size, width)
        large = 4 * self.size * width > self.memory_budget
        table = in_file(shape, torch.float32) if large else torch.empty(shape)
        step = max(1, self.memory_budget // (16 * width * self.comm.size))
        ends = [self.size * rank // self.comm.size for rank in range(self.comm.size + 1)]
        for first in range(0, longest, step):
            rows = torch.arange(self.start, self.stop, device=device)[first : first + step]
            parts = self.comm.gather(encode(rows).float()).cpu()
            for start, stop in pairwise(ends):
                size = min(max(0, stop - start - first), step)
                table[start + first : start + first + size] = parts[:size]
                parts = parts[size:]
        return table


class GatherRows(torch.autograd.Function):
    """Gather the rows of all processes; the backward pass sums their gradients at the owner."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, places: Tensor, size: int, comm: Comm) -> Tensor:
        ctx.save_for_backward(places)
        ctx.comm = comm
        every = own.new_zeros(size, own.shape[1]).index_copy_(0, places, own)
        return comm.sum(every)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None]:
        (places,) = ctx.saved_tensors
        return ctx.comm.sum(upstream.clone())[places], None, None, None
