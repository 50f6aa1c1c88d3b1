"""The pairs of one side's rows and sums over them, wherever the other side's vectors are.

A sum over a row's pairs, each weighed by what is known of both ends, is all that a system of least
squares asks of them. ``Held`` has the vectors of the other side. Where candidates are divided by
row, ``Gathered`` are the pairs of queries, which bring some candidates here at a time, and
``Scattered`` those of candidates, whose sums go back to where each candidate is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.kernels.sparse import blocks, row_sums
from rankfold.objectives.quadratic import Half
from rankfold.solvers.shards import Group, Shards
from rankfold.types import Comm, Interactions

ENTRIES = {"cpu": 2**19}  # of a block of vectors: a few of them stay in a CPU's cache
PAIRS = {"cpu": 2**16}  # of a block, likewise
LARGEST = 2**26  # of either, elsewhere


class Some(NamedTuple):
    """Pairs of some rows with some of the other side, and what is known of both."""

    pairs: Interactions  # [B, m]
    pull_own: Tensor  # [B]
    pull_other: Tensor  # [m]
    x: Tensor | None  # [B, D]
    others: Tensor  # Y [m, D]


Weigh = Callable[[Some], Tensor | None]
"""A weight for each pair; None: all 1."""


class Pairs(Protocol):
    """The pairs of the rows that are here."""

    @property
    def rows_in(self) -> Comm:
        """Among whom the rows of this side are divided, where a sum over them needs all."""
        ...

    def sums(self, others: Tensor, weigh: Weigh, x: Tensor | None = None) -> Tensor:
        """The sum of each row's Y_j, weighed by pair; [n, D].

        ``others`` and ``x`` are the rows that are here; ``weigh`` is given some of all.
        """
        ...

    def counts(self) -> Tensor:
        """How many pairs each row has; [n]."""
        ...

    def mean_square(self, others: Tensor) -> Tensor:
        """The mean square of each entry of Y over the pairs of all processes; [D]."""
        ...

    def blocks(self, others: Tensor) -> Iterator[tuple[slice, Pairs]]:
        """Runs of rows to be solved at a time, the same everywhere."""
        ...


class Held(NamedTuple):
    """All others that the pairs are with are here."""

    rows: Interactions  # [n, m]
    pull_own: Tensor
    pull_other: Tensor
    comm: Comm  # among which the others are divided, and so the pairs of a row
    counted: Comm  # among which all pairs are
    rows_in: Comm = SINGLE_PROCESS

    def sums(self, others: Tensor, weigh: Weigh, x: Tensor | None = None) -> Tensor:
        some = Some(self.rows, self.pull_own, self.pull_other, x, others)
        return self.comm.sum(row_sums(self.rows, others, weigh(some)))

    def counts(self) -> Tensor:
        return self.comm.sum(self.rows.counts())

    def mean_square(self, others: Tensor) -> Tensor:
        return _mean_square(self.rows.candidate_counts(), others, self.counted)

    def blocks(self, others: Tensor) -> Iterator[tuple[slice, Pairs]]:
        """As many as a CPU's cache holds, by the pairs that all processes have together."""
        counts = self.counts()
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        most = rows_at_once(others), PAIRS.get(others.device.type, LARGEST)
        for first, last in blocks(replace(self.rows, offsets=offsets), *most):
            part, pulls = self.rows.part(first, last), self.pull_own[first:last]
            yield slice(first, last), self._replace(rows=part, pull_own=pulls)


class Gathered(NamedTuple):
    """Pairs of this process's queries with candidates that are divided by row."""

    shards: Shards
    pull_own: Tensor
    pull_other: Tensor  # of all candidates

    @property
    def rows_in(self) -> Comm:
        return self.shards.comm

    def sums(self, others: Tensor, weigh: Weigh, x: Tensor | None = None) -> Tensor:
        def weights(group: Group, gathered: Tensor) -> Tensor | None:
            pulls = self.pull_own, self.shards.numbers(self.pull_other, group)
            return weigh(Some(group.rows, *pulls, x, gathered))

        return self.shards.sums(others, weights)

    def counts(self) -> Tensor:
        return self.shards.pairs.counts()

    def mean_square(self, others: Tensor) -> Tensor:
        return _mean_square(self.shards.counts, others, self.shards.comm)

    def blocks(self, others: Tensor) -> Iterator[tuple[slice, Pairs]]:  # noqa: ARG002
        """All at once: each block would bring all candidates here again."""
        yield slice(None), self


class Scattered(NamedTuple):
    """Pairs of the candidates that are here, some of them, with the queries of all processes."""

    shards: Shards
    groups: Sequence[Group]  # in which these candidates are
    pull_own: Tensor  # of all candidates
    pull_other: Tensor

    @property
    def rows_in(self) -> Comm:
        return self.shards.comm

    def sums(self, others: Tensor, weigh: Weigh, x: Tensor | None = None) -> Tensor:
        def weights(group: Group) -> Tensor | None:
            its = None if x is None else self.shards.gathered(x, group, self.groups[0].first)
            pulls = self.shards.numbers(self.pull_own, group), self.pull_other
            return weigh(Some(group.columns, *pulls, its, others))

        return self.shards.spread(others, weights, self.groups)

    def counts(self) -> Tensor:
        return self.shards.counts[self.shards.places(self.groups)]

    def mean_square(self, others: Tensor) -> Tensor:
        return _mean_square(self.shards.pairs.counts(), others, self.shards.comm)

    def blocks(self, others: Tensor) -> Iterator[tuple[slice, Pairs]]:  # noqa: ARG002
        """The groups."""
        for group in self.groups:
            yield self.shards.places([group]), self._replace(groups=[group])


class Side(NamedTuple):
    """A half, whose numbers but for pulls are those of the rows here, and the pairs of these."""

    half: Half
    pairs: Pairs


def held_side(half: Half) -> Side:
    return Side(half, Held(half.rows, half.pull_own, half.pull_other, half.comm, half.pairs))


def query_side(half: Half, shards: Shards) -> Side:
    """Of the query half, where candidates are divided."""
    here, pairs = shards.rows, Gathered(shards, half.pull_own, half.pull_other)
    gram, line = half.gram_other[here], half.line_other[here]
    return Side(replace(half, gram_other=gram, line_other=line, comm=shards.comm), pairs)


def candidate_side(half: Half, shards: Shards) -> Side:
    """Of the candidate half, where candidates are divided."""
    here = shards.rows
    pairs = Scattered(shards, shards.groups, half.pull_own, half.pull_other)
    gram, line, reg = half.gram_own[here], half.line_own[here], half.reg[here]
    return Side(replace(half, gram_own=gram, line_own=line, reg=reg), pairs)


def _mean_square(counts: Tensor, others: Tensor, comm: Comm) -> Tensor:
    """By how many pairs each of the others that are here has."""
    counts = counts.to(others.dtype)
    total = others.new_zeros(others.shape[1])
    for some in runs(others):
        total += counts[some] @ others[some] ** 2
    return comm.sum(total) / comm.sum(counts.sum()).clamp(min=1)


def runs(vectors: Tensor) -> Iterator[slice]:
    """Rows that are worked on at a time."""
    step = rows_at_once(vectors)
    return (slice(first, first + step) for first in range(0, len(vectors), step))


def rows_at_once(vectors: Tensor) -> int:
    """How many are worked on at a time, of vectors [..., D] like these."""
    return max(64, ENTRIES.get(vectors.device.type, LARGEST) // max(1, vectors.shape[-1]))
