"""Weighted sums over the pairs of one side's rows, wherever the other side's vectors are.

A least-squares system needs its pairs only through such sums. ``LocalPairs`` has the vectors of the
other side. Where candidates are divided by row, ``GatheredPairs`` are the pairs of queries, which
gather some candidates at a time, and ``ScatteredPairs`` the pairs of candidates, whose sums go back
to the owner of each candidate.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from torch import Tensor

from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.kernels.sparse import blocks, row_sums
from rankfold.kernels.threads import summed
from rankfold.objectives.quadratic import Half
from rankfold.solvers.shards import Group, Shards
from rankfold.types import Comm, Interactions, offsets_of

BLOCK_ENTRIES = {"cpu": 2**19}  # of a block of vectors: a few blocks fit a CPU's cache
_BLOCK_PAIRS = 2**16  # of a block on a CPU, for the same reason
_MIN_BLOCKS, _MIN_BLOCK_PAIRS = 8, 2**13  # so that two threads have equally much to do
_MAX_BLOCK = 2**26  # of either, on other devices


class PairBlock(NamedTuple):
    """Pairs of some rows with some of the other side, and the numbers and vectors of both."""

    pairs: Interactions  # [B, m]
    pull_own: Tensor  # [B]
    pull_other: Tensor  # [m]
    x: Tensor | None  # [B, D]
    others: Tensor  # Y [m, D]


Weigh = Callable[[PairBlock], Tensor | None]
"""A weight for each pair; None: all 1."""


class Pairs(Protocol):
    """The pairs of this process's rows."""

    @property
    def rows_in(self) -> Comm:
        """The processes that divide the rows of this side: a sum over rows needs all of them."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether sums over pairs need no other process."""
        ...

    def sums(self, others: Tensor, weigh: Weigh, x: Tensor | None = None) -> Tensor:
        """The sum of each row's Y_j, weighted by pair; [n, D].

        ``others`` and ``x`` are the rows of this process. ``weigh`` gets any block of pairs.
        """
        ...

    def counts(self) -> Tensor:
        """The number of pairs of each row; [n]."""
        ...

    def mean_square(self, others: Tensor) -> Tensor:
        """The mean square of each entry of Y over the pairs of all processes; [D]."""
        ...

    def blocks(self, others: Tensor) -> Iterator[tuple[slice, "Pairs"]]:
        """Runs of rows to solve at a time, the same on all processes."""
        ...


class LocalPairs(NamedTuple):
    """Pairs whose other side is on this process."""

    rows: Interactions  # [n, m]
    pull_own: Tensor
    pull_other: Tensor
    comm: Comm  # the processes that divide the others, and so the pairs of a row
    counted: Comm  # the processes that divide all pairs
    rows_in: Comm = SINGLE_PROCESS

    @property
    def is_local(self) -> bool:
        return self.comm.size == 1

    def sums(self, others: Tensor, weigh: Weigh, x: Tensor | None = None) -> Tensor:
        some = PairBlock(self.rows, self.pull_own, self.pull_other, x, others)
        return self.comm.sum(row_sums(self.rows, others, weigh(some)))

    def counts(self) -> Tensor:
        return self.comm.sum(self.rows.counts())

    def mean_square(self, others: Tensor) -> Tensor:
        return _mean_square(self.rows.candidate_counts(), others, self.counted)

    def blocks(self, others: Tensor) -> Iterator[tuple[slice, "Pairs"]]:
        """Blocks that fit a CPU's cache, by the pairs of all processes together."""
        counts = self.counts()
        offsets = offsets_of(counts)
        most = _MAX_BLOCK
        if others.device.type == "cpu":
            most = min(max(int(offsets[-1]) // _MIN_BLOCKS, _MIN_BLOCK_PAIRS), _BLOCK_PAIRS)
        for first, last in blocks(replace(self.rows, offsets=offsets), rows_at_once(others), most):
            part, pulls = self.rows.part(first, last), self.pull_own[first:last]
            yield slice(first, last), self._replace(rows=part, pull_own=pulls)


class GatheredPairs(NamedTuple):
    """Pairs of this process's queries, with candidates that are divided by row."""

    shards: Shards
    pull_own: Tensor
    pull_other: Tensor  # of all candidates
    is_local: bool = False

    @property
    def rows_in(self) -> Comm:
        return self.shards.comm

    def sums(self, others: Tensor, weigh: Weigh, x: Tensor | None = None) -> Tensor:
        def weights(group: Group, gathered: Tensor) -> Tensor | None:
            pulls = self.pull_own, self.shards.numbers(self.pull_other, group)
            return weigh(PairBlock(group.rows, *pulls, x, gathered))

        return self.shards.sums(others, weights)

    def counts(self) -> Tensor:
        return self.shards.pairs.counts()

    def mean_square(self, others: Tensor) -> Tensor:
        return _mean_square(self.shards.counts, others, self.shards.comm)

    def blocks(self, others: Tensor) -> Iterator[tuple[slice, "Pairs"]]:  # noqa: ARG002
        """One block: each block would gather all candidates again."""
        yield slice(None), self


class ScatteredPairs(NamedTuple):
    """Pairs of some of this process's candidates, with the queries of all processes."""

    shards: Shards
    groups: Sequence[Group]  # of these candidates
    pull_own: Tensor  # of all candidates
    pull_other: Tensor
    is_local: bool = False

    @property
    def rows_in(self) -> Comm:
        return self.shards.comm

    def sums(self, others: Tensor, weigh: Weigh, x: Tensor | None = None) -> Tensor:
        def weights(group: Group) -> Tensor | None:
            vectors = None if x is None else self.shards.gathered(x, group, self.groups[0].first)
            pulls = self.shards.numbers(self.pull_own, group), self.pull_other
            return weigh(PairBlock(group.columns, *pulls, vectors, others))

        return self.shards.spread(others, weights, self.groups)

    def counts(self) -> Tensor:
        return self.shards.counts[self.shards.places(self.groups)]

    def mean_square(self, others: Tensor) -> Tensor:
        return _mean_square(self.shards.pairs.counts(), others, self.shards.comm)

    def blocks(self, others: Tensor) -> Iterator[tuple[slice, "Pairs"]]:  # noqa: ARG002
        """A block per group."""
        for group in self.groups:
            yield self.shards.places([group]), self._replace(groups=[group])


class Side(NamedTuple):
    """A half with its pairs. Its numbers, but for the pulls, are those of this process's rows."""

    half: Half
    pairs: Pairs


def local_side(half: Half) -> Side:
    return Side(half, LocalPairs(half.rows, half.pull_own, half.pull_other, half.comm, half.pairs))


def query_side(half: Half, shards: Shards) -> Side:
    """The query side where candidates are divided."""
    here, pairs = shards.rows, GatheredPairs(shards, half.pull_own, half.pull_other)
    gram, line = half.gram_other[here], half.line_other[here]
    return Side(replace(half, gram_other=gram, line_other=line, comm=shards.comm), pairs)


def candidate_side(half: Half, shards: Shards) -> Side:
    """The candidate side where candidates are divided."""
    here = shards.rows
    pairs = ScatteredPairs(shards, shards.groups, half.pull_own, half.pull_other)
    gram, line, reg = half.gram_own[here], half.line_own[here], half.reg[here]
    return Side(replace(half, gram_own=gram, line_own=line, reg=reg), pairs)


def _mean_square(counts: Tensor, others: Tensor, comm: Comm) -> Tensor:
    """The mean over pairs, given the number of pairs of each of the others."""
    counts = counts.to(others.dtype)
    total = summed(lambda some: counts[some] @ others[some] ** 2, list(runs(others)))
    return comm.sum(total) / comm.sum(counts.sum()).clamp(min=1)


def runs(vectors: Tensor) -> Iterator[slice]:
    """The rows of a table in blocks."""
    step = rows_at_once(vectors)
    return (slice(first, first + step) for first in range(0, max(1, len(vectors)), step))


def rows_at_once(vectors: Tensor) -> int:
    """The number of rows in a block of vectors [..., D] like these."""
    return max(64, BLOCK_ENTRIES.get(vectors.device.type, _MAX_BLOCK) // max(1, vectors.shape[-1]))
