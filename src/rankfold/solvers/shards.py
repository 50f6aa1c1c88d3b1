"""Candidates divided by row among processes, for tables that one of them could not hold.

Each process has the rows of its ``share``. What its queries need of the others is gathered some
candidates at a time, and what its queries add to them is summed to their owners likewise, so that a
product moves each row twice and nobody ever holds all of them. One number per candidate is not
divided.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from rankfold.kernels.sparse import row_sums
from rankfold.types import Comm, Interactions, TopK, from_pairs

CHUNK = 2**16  # candidates whose random start is drawn at a time, by a seed of their own


class Shards:
    """The pairs of this process's queries, in groups of candidates that are gathered at a time.

    A group has as many rows of each process; those of the last may be zeros. The pairs are held
    twice, by query and by candidate, and each group has offsets of its own.
    """

    def __init__(self, rows: Interactions, comm: Comm, most: int) -> None:
        """``most``: how many candidates are gathered at a time."""
        n, size = rows.n_candidates, comm.size
        self.comm, self.n = comm, n
        self.rows = slice(*comm.share(n))
        longest = -(-n // size)
        self._step = max(1, min(longest, most // size))
        ends = torch.tensor([n * rank // size for rank in range(size)], device=rows.offsets.device)
        owner = torch.searchsorted(ends, rows.candidates.long(), right=True) - 1
        place = rows.candidates - ends[owner]
        group, column = place // self._step, owner * self._step + place % self._step
        queries, shape = rows.query_of_pair().long(), (rows.n_queries, size * self._step)
        self._groups = []
        for number in range(-(-longest // self._step)):
            mine = (group == number).nonzero()[:, 0]
            grades = None if rows.grades is None else rows.grades[mine]
            part = from_pairs(queries[mine], column[mine], grades, shape)
            self._groups.append((part, part.transpose()))

    @property
    def size(self) -> int:
        """How many candidates are here."""
        return self.rows.stop - self.rows.start

    def sums(self, own: Tensor) -> Tensor:
        """R Q for the queries of this process, given the rows of Q that are here; [M, K]."""
        total = own.new_zeros(self._groups[0][0].n_queries, own.shape[1])
        for (rows, _), first in self._places():
            total += row_sums(rows, self._gathered(own, first), rows.grades)
        return total

    def spread(self, queries: Tensor) -> Tensor:
        """R^T P over the queries of all processes: the rows of the candidates that are here."""
        found = queries.new_empty(self.size, queries.shape[1])
        for (_, columns), first in self._places():
            part = self.comm.scatter_sum(row_sums(columns, queries, columns.grades))
            own = found[first : first + self._step]
            own.copy_(part[: len(own)])
        return found

    def start(self, width: int, seed: int, device: torch.device) -> Tensor:
        """The rows that are here of a random table that any number of processes would draw."""
        parts = []
        for chunk in range(self.rows.start // CHUNK, -(-self.rows.stop // CHUNK)):
            rng = torch.Generator().manual_seed(seed + chunk)
            whole = torch.randn(CHUNK, width, generator=rng)
            first = chunk * CHUNK
            parts.append(whole[max(0, self.rows.start - first) : self.rows.stop - first])
        return torch.cat(parts).to(device)

    def seen(self, rows: Interactions) -> Interactions:
        """Of pairs of some queries of each process, those of all with the candidates here."""
        counts = self.comm.gather(rows.counts())
        candidates = self.comm.gather(rows.candidates)
        queries = torch.repeat_interleave(torch.arange(len(counts)), counts)
        mine = (candidates >= self.rows.start) & (candidates < self.rows.stop)
        here, shape = candidates[mine] - self.rows.start, (len(counts), self.size)
        return from_pairs(queries[mine], here, None, shape)

    def merge(self, found: TopK, k: int) -> TopK:
        """The k best of all, from the best of the candidates that are here; ids become global."""
        ids = torch.where(found.ids >= 0, found.ids + self.rows.start, -1)
        lack = k - ids.shape[1]
        ids = torch.nn.functional.pad(ids, (0, lack), value=-1)
        scores = torch.nn.functional.pad(found.scores, (0, lack), value=-torch.inf)
        every = [self.comm.gather(one[None]).permute(1, 0, 2).flatten(1) for one in (ids, scores)]
        order = torch.sort(every[1], dim=1, descending=True, stable=True).indices[:, :k]
        return TopK(every[0].gather(1, order), every[1].gather(1, order))

    def _places(self) -> Iterator[tuple[tuple[Interactions, Interactions], int]]:
        return zip(self._groups, range(0, self._step * len(self._groups), self._step), strict=True)

    def _gathered(self, own: Tensor, first: int) -> Tensor:
        part = own[first : first + self._step]
        lack = self._step - len(part)
        return self.comm.gather(torch.nn.functional.pad(part, (0, 0, 0, lack)))
