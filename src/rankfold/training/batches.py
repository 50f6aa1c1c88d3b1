"""The batches of an epoch: shuffled pairs, shuffled queries with all their choices, or rows.

Several processes draw the same order over the examples of all of them, numbered process by process.
Each takes its own from a batch. So a batch is the same as with one process.
"""

from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from rankfold.distributed.collectives import SINGLE_PROCESS, row_offset
from rankfold.encoders.sequences import in_order, latest, shuffled
from rankfold.types import Batch, Comm, Interactions, OwnRows

MIN_BATCHES = 16  # of an epoch, with the default batch size


class Batches(Protocol):
    """The batches of an epoch. The order is drawn once per epoch; no Python runs per row."""

    def __len__(self) -> int: ...

    def order(self, rng: torch.Generator) -> Tensor:
        """The order of one epoch."""
        ...

    def take(self, order: Tensor, number: int) -> "Batch | Rows | Tensor":
        """The batch with a given number in that order."""
        ...


class Rows(NamedTuple):
    """Queries to learn from, each with all its choices."""

    queries: Tensor  # [B] int64; of several processes, those of this one, [b]
    positives: Interactions  # a row per query
    own: OwnRows | None = None  # the places of this process's rows in the batch; None: all
    numbers: Tensor | None = None  # [B], of the batch's rows among those of all processes

    @property
    def size(self) -> int:
        """B, the batch's rows on all processes."""
        return len(self.queries) if self.own is None else self.own.total

    @property
    def weights(self) -> Tensor:
        """The pairs of each query, so that a mean over queries is one over pairs."""
        rows = self.positives
        if rows.grades is None:
            return rows.counts()
        sums = rows.grades.new_zeros(rows.n_queries)
        return sums.index_add(0, rows.query_of_pair().long(), rows.grades)


class Share(NamedTuple):
    """The range of examples of this process among those of all processes."""

    first: int
    stop: int
    total: int  # of all processes

    def find(self, numbers: Tensor) -> OwnRows:
        """The places of its own examples in a batch."""
        mine = (numbers >= self.first) & (numbers < self.stop)
        return OwnRows(mine.nonzero()[:, 0], len(numbers))


def share_of(count: int, comm: Comm) -> Share:
    """The share of a process with ``count`` examples, numbered process by process."""
    first, total = row_offset(count, comm)
    return Share(first, first + count, total)


def default_batch(n: int, smallest: int, largest: int) -> int:
    """A power of 2 within bounds, with at least ``MIN_BATCHES`` of n examples where they allow it.

    With few examples, large batches make too few updates. With many, small batches waste time.
    """
    size: int = 2 ** (max(1, n // MIN_BATCHES).bit_length() - 1)
    return max(smallest, min(largest, size))


class PairBatches:
    """Every pair once per epoch; with weights, equally many pairs, drawn by weight.

    Each of several processes has the queries of its own pairs and the candidates of all pairs.
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
        grades = rows.grades if weights == "grade" else None
        self.summed = None if grades is None else grades.double().cumsum(0)

    def __len__(self) -> int:
        return -(-self.share.total // self.batch_size)

    def order(self, rng: torch.Generator) -> Tensor:
        count, device = self.share.total, rng.device
        if self.summed is None:
            return torch.randperm(count, generator=rng, device=device)
        marks = torch.rand(count, generator=rng, device=device, dtype=torch.float64)
        return self._marked(marks, self.summed)

    def _marked(self, marks: Tensor, summed: Tensor) -> Tensor:
        """The pairs at marks between 0 and 1 of the summed weights; -1 for other processes'."""
        last = summed[-1:] if len(summed) else summed.new_zeros(1)
        ends = self.comm.gather(last).cumsum(0)
        marks = marks * ends[-1]
        last_owner = int(torch.searchsorted(ends, ends[-1:]))  # of a mark that was rounded to 1
        who = torch.searchsorted(ends, marks, right=True).clamp_(max=last_owner)
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


class SequenceBatches:
    """Every query with choices once per epoch, as a pair per choice after its earlier ones.

    Choices are in order of time, of many the latest; without times in a random order.
    """

    def __init__(
        self, rows: Interactions, n_queries: int, length: int, *, with_first: bool = False
    ) -> None:
        """``n_queries`` in a batch, each with up to ``length`` pairs.

        ``with_first``: the first choice of a query, which has no history, is a pair, too.
        """
        self.by_time, self.length = rows.times is not None, length + 1
        self.sequences = in_order(rows, self.length if self.by_time else None)
        self.first = 0 if with_first else 1
        self.active = (self.sequences.counts() > self.first).nonzero().flatten()
        self.n_queries = n_queries

    def __len__(self) -> int:
        return -(-len(self.active) // self.n_queries)

    def order(self, rng: torch.Generator) -> Tensor:
        """The queries in random order, then a seed for their choices."""
        order = torch.randperm(len(self.active), generator=rng, device=rng.device)
        seed = torch.randint(2**62, (1,), generator=rng, device=rng.device)
        return torch.cat([self.active[order], seed])

    def take(self, order: Tensor, number: int) -> Batch:
        queries = order[:-1][number * self.n_queries : (number + 1) * self.n_queries]
        sequences = self.sequences.select(queries)
        if not self.by_time:
            rng = torch.Generator(order.device).manual_seed(int(order[-1]) + number)
            sequences = latest(shuffled(sequences, rng), self.length)
        rows = sequences.row_of_entry()
        places = torch.arange(len(rows), device=rows.device) - sequences.offsets[rows]
        kept = places >= self.first
        return Batch(queries[rows[kept]], sequences.candidates[kept], sequences=sequences)


class QueryBatches:
    """Every query with choices once per epoch. Each of several processes has its own."""

    def __init__(self, rows: Interactions, batch_size: int, comm: Comm = SINGLE_PROCESS) -> None:
        self.rows, self.batch_size = rows, batch_size
        self.active = rows.counts().nonzero().flatten()
        self.comm, self.share = comm, share_of(len(self.active), comm)

    def __len__(self) -> int:
        return -(-self.share.total // self.batch_size)

    def order(self, rng: torch.Generator) -> Tensor:
        order = torch.randperm(self.share.total, generator=rng, device=rng.device)
        return self.active[order] if self.comm.size == 1 else order

    def take(self, order: Tensor, number: int) -> Rows:
        queries = order[number * self.batch_size : (number + 1) * self.batch_size]
        if self.comm.size == 1:
            return Rows(queries, self.rows.select(queries))
        own = self.share.find(queries)
        mine = self.active[queries[own.places] - self.share.first]
        return Rows(mine, self.rows.select(mine), own, queries)


class RowBatches:
    """Every graded row once per epoch. A single last row joins the batch before."""

    def __init__(self, n_rows: int, batch_size: int) -> None:
        self.n_rows, self.batch_size = n_rows, batch_size

    def __len__(self) -> int:
        return max(1, -(-(self.n_rows - 1) // self.batch_size))

    def order(self, rng: torch.Generator) -> Tensor:
        return torch.randperm(self.n_rows, generator=rng, device=rng.device)

    def take(self, order: Tensor, number: int) -> Tensor:
        stop = None if number == len(self) - 1 else (number + 1) * self.batch_size
        return order[number * self.batch_size : stop]
