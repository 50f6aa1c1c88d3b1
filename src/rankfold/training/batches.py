"""What an epoch consists of: shuffled pairs, shuffled queries with all that they chose, rows.

Several processes draw the same order of what they all have, numbered one process after the other,
and each takes from a batch what is its own: the batch is that of one process.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from rankfold.distributed.collectives import SINGLE_PROCESS, row_offset
from rankfold.types import Batch, Comm, Interactions, Own


class Batches(Protocol):
    """The batches of an epoch. Order is drawn once per epoch; no Python runs per row."""

    def __len__(self) -> int: ...

    def order(self, rng: torch.Generator) -> Tensor:
        """What comes when, for one epoch."""
        ...

    def take(self, order: Tensor, number: int) -> Batch | Rows | Tensor:
        """The batch at a place of that order."""
        ...


class Rows(NamedTuple):
    """Queries to learn from, each with all candidates that it chose."""

    queries: Tensor  # [B] int64; of several processes, of the own rows, [b]
    positives: Interactions  # a row per query
    own: Own | None = None  # None: all are
    numbers: Tensor | None = None  # [B], of all rows among those that all processes have, likewise

    @property
    def size(self) -> int:
        """B, the rows of all processes."""
        return len(self.queries) if self.own is None else self.own.of

    @property
    def weights(self) -> Tensor:
        """A query counts as its pairs do: a mean over queries is one over pairs."""
        rows = self.positives
        if rows.grades is None:
            return rows.counts()
        sums = rows.grades.new_zeros(rows.n_queries)
        return sums.index_add(0, rows.query_of_pair().long(), rows.grades)


class Share(NamedTuple):
    """Which of the things that all processes have are this one's."""

    first: int
    stop: int
    total: int  # of all processes

    def find(self, numbers: Tensor) -> Own:
        """Where in a batch of them its own are."""
        mine = (numbers >= self.first) & (numbers < self.stop)
        return Own(mine.nonzero()[:, 0], len(numbers))


def share_of(count: int, comm: Comm) -> Share:
    """The share of a process that has so many, one process after the other."""
    first, total = row_offset(count, comm)
    return Share(first, first + count, total)


class PairBatches:
    """Every pair once per epoch; with weights, as many pairs, drawn by them.

    Of several processes each knows the queries of its own pairs and the candidates of all.
    """

    def __init__(
        self,
        rows: Interactions,
        batch_size: int,
        weights: Literal["none", "grade"],
        comm: Comm = SINGLE_PROCESS,
    ) -> None:
        self.queries, self.candidates = rows.query_of_pair(), rows.candidates
        self.batch_size, self.comm = batch_size, comm
        self.share = share_of(rows.n_pairs, comm)
        drawn = weights == "grade" and rows.grades is not None
        self.summed = rows.grades.double().cumsum(0) if drawn and rows.grades is not None else None

    def __len__(self) -> int:
        return -(-self.share.total // self.batch_size)

    def order(self, rng: torch.Generator) -> Tensor:
        count, device = self.share.total, rng.device
        if self.summed is None:
            return torch.randperm(count, generator=rng, device=device)
        marks = torch.rand(count, generator=rng, device=device, dtype=torch.float64)
        return self._marked(marks, self.summed)

    def _marked(self, marks: Tensor, summed: Tensor) -> Tensor:
        """The pairs on which marks between 0 and 1 fall; -1 where they are not this process's."""
        last = summed[-1:] if len(summed) else summed.new_zeros(1)
        ends = self.comm.gather(last).cumsum(0)
        marks = marks * ends[-1]
        who = torch.searchsorted(ends, marks, right=True)
        who = who.clamp_(max=int(torch.searchsorted(ends, ends[-1:])))  # what rounding made 1
        before = ends[self.comm.rank] - last
        places = torch.searchsorted(summed, marks - before, right=True)
        places = places.clamp_(max=len(summed) - 1) + self.share.first
        return torch.where(who == self.comm.rank, places, -1)

    def take(self, order: Tensor, number: int) -> Batch:
        places = order[number * self.batch_size : (number + 1) * self.batch_size]
        if self.comm.size == 1:
            return Batch(self.queries[places].long(), self.candidates[places].long())
        own = self.share.find(places)
        mine = places[own.places] - self.share.first
        candidates = self.candidates.new_zeros(len(places))
        candidates[own.places] = self.candidates[mine]
        return Batch(self.queries[mine].long(), self.comm.sum(candidates).long(), own)


class QueryBatches:
    """Every query that chose something, once per epoch; of several processes each has its own."""

    def __init__(self, rows: Interactions, batch_size: int, comm: Comm = SINGLE_PROCESS) -> None:
        self.rows, self.batch_size = rows, batch_size
        self.asking = rows.counts().nonzero().flatten()
        self.comm, self.share = comm, share_of(len(self.asking), comm)

    def __len__(self) -> int:
        return -(-self.share.total // self.batch_size)

    def order(self, rng: torch.Generator) -> Tensor:
        order = torch.randperm(self.share.total, generator=rng, device=rng.device)
        return self.asking[order] if self.comm.size == 1 else order

    def take(self, order: Tensor, number: int) -> Rows:
        queries = order[number * self.batch_size : (number + 1) * self.batch_size]
        if self.comm.size == 1:
            return Rows(queries, self.rows.select(queries))
        own = self.share.find(queries)
        mine = self.asking[queries[own.places] - self.share.first]
        return Rows(mine, self.rows.select(mine), own, queries)


class RowBatches:
    """Every graded row once per epoch; a last row that would be alone goes with those before."""

    def __init__(self, n_rows: int, batch_size: int) -> None:
        self.n_rows, self.batch_size = n_rows, batch_size

    def __len__(self) -> int:
        return max(1, -(-(self.n_rows - 1) // self.batch_size))

    def order(self, rng: torch.Generator) -> Tensor:
        return torch.randperm(self.n_rows, generator=rng, device=rng.device)

    def take(self, order: Tensor, number: int) -> Tensor:
        stop = None if number == len(self) - 1 else (number + 1) * self.batch_size
        return order[number * self.batch_size : stop]
