"""Candidates divided by row among processes, for tables that one process cannot hold.

Each process has the rows of its ``share``. The vectors that its queries need are gathered some
candidates at a time, and the sums over its queries are scattered to the owners in the same way. So
a product moves each row twice, and no process ever holds all of them. Tensors with one number per
candidate are not divided.
"""

import ctypes
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.kernels.sparse import row_sums
from rankfold.types import Comm, Interactions, Run, TopK, from_pairs

COPIES = 2  # of the gathered vectors: torch makes one more on the way
QUERY_BLOCK = {"cpu": 2**12}  # queries whose sums are added at a time; on other devices all
_MAX_GROUPS = 64  # each has offsets for all queries of a process: more would outgrow the pairs
_MMAP_THRESHOLD = 2**21  # bytes; a larger block goes back to the system when it is freed
_TRIM_THRESHOLD = 2**24  # bytes of free memory that a process keeps at most
DRAW_BLOCK = 2**16  # candidates whose random start is drawn at a time; a multiple of 16


class Group(NamedTuple):
    """Candidates that are gathered at a time, equally many of each process."""

    first: int  # their first place among the candidates of each process
    rows: Interactions  # the pairs of this process's queries with them
    columns: Interactions  # the same pairs by candidate


def divide(rows: Interactions, width: int, run: Run) -> "Shards | None":
    """The division of the candidates, or None if a process can hold a table of them."""
    n, most = rows.n_candidates, run.candidate_memory
    if run.comm.size == 1 or n < run.comm.size or 4 * n * width <= most:
        return None
    return shards_of(rows, width, run)


def shards_of(rows: Interactions, width: int, run: Run) -> "Shards":
    """Candidates divided by row, with groups that fit the memory of the run."""
    return_freed_memory()
    most = min(run.memory_budget, run.candidate_memory)
    return Shards(rows, run.comm, most // (4 * width * COPIES))


class Shards:
    """The pairs of this process's queries, in groups of candidates that are gathered at a time.

    A group has equally many rows of each process; the last group is padded with zeros. The pairs
    are stored twice, by query and by candidate, and each group has its own offsets.
    """

    def __init__(self, rows: Interactions, comm: Comm, most: int) -> None:
        """``most``: the largest number of candidates to gather at a time."""
        n, size = rows.n_candidates, comm.size
        self.comm, self.n, self.pairs = comm, n, rows
        self.rows = slice(*comm.share(n))
        longest = -(-n // size)
        self._step = max(1, -(-longest // _MAX_GROUPS), min(longest, most // size))
        device = rows.offsets.device
        self._starts = torch.tensor([n * rank // size for rank in range(size)], device=device)
        owner = torch.searchsorted(self._starts, rows.candidates.long(), right=True) - 1
        place = rows.candidates - self._starts[owner]
        group, column = place // self._step, owner * self._step + place % self._step
        queries, shape = rows.query_of_pair().long(), (rows.n_queries, size * self._step)
        self.groups = []
        for number in range(-(-longest // self._step)):
            mine = (group == number).nonzero()[:, 0]
            grades = None if rows.grades is None else rows.grades[mine]
            part = from_pairs(queries[mine], column[mine], grades, shape)
            self.groups.append(Group(number * self._step, part, part.transpose()))

    @property
    def size(self) -> int:
        """The number of candidates of this process."""
        return self.rows.stop - self.rows.start

    @cached_property
    def counts(self) -> Tensor:
        """The number of pairs of this process's candidates with the queries of all processes."""
        return self.comm.sum(self.pairs.candidate_counts())[self.rows].clone()

    def sums(
        self, own: Tensor, weigh: Callable[[Group, Tensor], Tensor | None] | None = None
    ) -> Tensor:
        """R Q for the queries of this process, given its rows of Q; [M, K].

        ``weigh`` gives the weights of a group's pairs from its gathered vectors; None: the grades.
        """
        total = own.new_zeros(self.pairs.n_queries, own.shape[1])
        for group in self.groups:
            vectors = self.gathered(own, group)
            weights = group.rows.grades if weigh is None else weigh(group, vectors)
            _add_sums(total, group.rows, vectors, weights)
        return total

    def spread(
        self,
        queries: Tensor,
        weigh: Callable[[Group], Tensor | None] | None = None,
        groups: Sequence[Group] | None = None,
    ) -> Tensor:
        """R^T P over the queries of all processes: the rows of this process's candidates.

        ``weigh`` gives the weights of a group's pairs by candidate; None: the grades. With
        ``groups``, which are adjacent, the rows are those of their candidates.
        """
        groups = self.groups if groups is None else groups
        parts = []
        for group in groups:
            weights = group.columns.grades if weigh is None else weigh(group)
            part = self.comm.scatter_sum(row_sums(group.columns, queries, weights))
            place = self.places([group])
            parts.append(part[: place.stop - place.start])
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def places(self, groups: Sequence[Group]) -> slice:
        """The places of the candidates of adjacent groups among this process's candidates."""
        ends = groups[0].first, groups[-1].first + self._step
        return slice(*(min(end, self.size) for end in ends))

    def gathered(self, own: Tensor, group: Group, first: int = 0) -> Tensor:
        """The vectors of a group. ``own`` has this process's rows from ``first`` on."""
        part = own[group.first - first : group.first - first + self._step]
        lack = self._step - len(part)
        if lack > 0:
            part = torch.nn.functional.pad(part, (0, 0, 0, lack))
        return self.comm.gather(part)

    def numbers(self, numbers: Tensor, group: Group) -> Tensor:
        """The entries of a group, from a number per candidate. Padding gets any."""
        places = torch.arange(self._step, device=self._starts.device) + group.first
        ids = (self._starts[:, None] + places).flatten().clamp(max=self.n - 1)
        return numbers[ids]

    def pieces(self, own: Tensor, numbers: Tensor) -> Iterator[tuple[Interactions, Tensor, Tensor]]:
        """For each group: its pairs, its vectors, and its entries of a number per candidate."""
        for group in self.groups:
            yield group.rows, self.gathered(own, group), self.numbers(numbers, group)

    def start(self, width: int, rng: torch.Generator, device: torch.device) -> Tensor:
        """The rows of ``torch.randn(n, width)`` of this process, drawn a block at a time.

        Blocks of a multiple of 16 rows give the same numbers as one call.
        """
        rows, place = torch.empty(self.size, width), 0
        for first, last in pairwise(
            [*range(0, max(1, self.n - DRAW_BLOCK + 1), DRAW_BLOCK), self.n]
        ):
            drawn = torch.randn(last - first, width, generator=rng)
            mine = drawn[max(0, self.rows.start - first) : max(0, self.rows.stop - first)]
            rows[place : place + len(mine)] = mine
            place += len(mine)
        return rows.to(device)

    def seen(self, rows: Interactions) -> Interactions:
        """The pairs of all processes, restricted to this process's candidates."""
        counts = self.comm.gather(rows.counts())
        candidates = self.comm.gather(rows.candidates)
        queries = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
        mine = (candidates >= self.rows.start) & (candidates < self.rows.stop)
        here, shape = candidates[mine] - self.rows.start, (len(counts), self.size)
        grades = None if rows.grades is None else self.comm.gather(rows.grades)[mine]
        return from_pairs(queries[mine], here, grades, shape)

    def merge(self, local: TopK, k: int) -> TopK:
        """The k best of all candidates, from the best of each process. Ids become global."""
        ids = torch.where(local.ids >= 0, local.ids + self.rows.start, -1)
        lack = k - ids.shape[1]
        ids = torch.nn.functional.pad(ids, (0, lack), value=-1)
        scores = torch.nn.functional.pad(local.scores, (0, lack), value=-torch.inf)
        every = [self.comm.gather(one[None]).permute(1, 0, 2).flatten(1) for one in (ids, scores)]
        order = torch.sort(every[1], dim=1, descending=True, stable=True).indices[:, :k]
        return TopK(every[0].gather(1, order), every[1].gather(1, order))


def _add_sums(total: Tensor, rows: Interactions, vectors: Tensor, weights: Tensor | None) -> None:
    """Add R Q, weighted by pair, to a table; in blocks, to avoid a second table of its size."""
    step = QUERY_BLOCK.get(vectors.device.type, max(1, len(total)))
    for first in range(0, len(total), step):
        last = min(first + step, len(total))
        part, pairs = rows.part(first, last), slice(*rows.offsets[[first, last]].tolist())
        total[first:last] += row_sums(part, vectors, None if weights is None else weights[pairs])


def return_freed_memory() -> None:
    """From now on, return freed tables to the system.

    By default glibc keeps freed blocks of up to 32 MiB, in holes. With shards and groups of that
    size, a rank would hold twice what it uses. Getting such memory again takes time, so this is for
    runs that divide what one process cannot hold.
    """
    if sys.platform != "linux":
        return
    trim_threshold, mmap_threshold = -1, -3  # as in malloc.h
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # not in musl
        library.mallopt(mmap_threshold, _MMAP_THRESHOLD)
        library.mallopt(trim_threshold, _TRIM_THRESHOLD)
