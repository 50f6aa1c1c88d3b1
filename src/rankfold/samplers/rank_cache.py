"""Where a row would stand among all negatives, told from the latest rows of each grade."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from rankfold.errors import UserError

SHARPNESS = 40.0  # of the softmax over cosines that finds a row's like
ALIKE = 16  # rows, of which products are rounded alike
BLOCK = 512  # entries whose likeness is held at a time
LITTLE = 1e-30  # far below all sums here, the least of which is e^-40


class RankCache:
    """The latest feature vectors of each grade.

    First in, first out; where a grade has no more rows than its queue would have places, each row
    has a place of its own. They are about as many of each grade, while grades are rarely as
    frequent: each entry stands for its grade's share of the data, divided among the entries of the
    grade; [cba], Alg. 1.

    What is kept, and what a step makes of it, has O(grades x size x width) numbers, however many
    rows there are.

    Departs from the paper, where every grade counts alike (``shares`` of ones are that), and where
    all have as many entries, of a grade with fewer rows several copies (decision 22).
    """

    def __init__(self, grades: Tensor, shares: Tensor, size: int, width: int) -> None:
        """``grades`` [n] are those of all rows, ``shares`` [G] how much each grade counts."""
        device, counts = shares.device, torch.bincount(grades, minlength=len(shares))
        self.grades, self.shares, self.size = grades, shares, size
        self.sizes = counts.clamp(max=size)
        self.starts = self.sizes.cumsum(0) - self.sizes
        self.n_negative = int(self.starts[-1])  # entries; the highest grade is never negative
        self.homes = homes(grades, counts, self.starts, size)
        numbers = torch.arange(len(shares), device=device)
        self.owners = numbers.repeat_interleave(self.sizes)  # the grade of each entry
        self.longest = int(self.sizes[:-1].max())
        self.cells = cells(self.owners[: self.n_negative], self.starts, self.longest)
        self.ones = torch.eye(len(shares), dtype=torch.int64, device=device)
        length = -(-len(self.owners) // ALIKE) * ALIKE
        self.vectors = torch.zeros(length, width, device=device)  # one grade after another
        self.taken = torch.zeros_like(self.owners, dtype=torch.bool)
        self.counts = torch.zeros_like(self.sizes)  # that ever came
        self.settled: tuple[Tensor, Tensor] | None = None  # weights that do not change any more

    def push(self, vectors: Tensor, rows: Tensor) -> None:
        """Take in a batch [B, D] of rows [B]; of more than fit, the last ones stay."""
        if len(rows) == 0:
            return
        grades = self.grades.index_select(0, rows)
        came = self.ones.index_select(0, grades).cumsum_(0).add_(self.counts)  # up to each row
        self.counts.copy_(came[-1])
        places = came.gather(1, grades[:, None]).squeeze(1).sub_(1)
        if len(rows) > self.size:
            stays = places >= (self.counts - self.sizes)[grades]
            vectors, rows, grades, places = (x[stays] for x in (vectors, rows, grades, places))
        at = places.remainder_(self.sizes.index_select(0, grades))
        at += self.starts.index_select(0, grades)
        if self.homes is not None:
            at = self._home(rows, at)
        self.vectors.index_copy_(0, at, vectors.detach().to(self.vectors.dtype))
        if self.settled is None:
            self.taken.index_fill_(0, at, value=True)

    def _home(self, rows: Tensor, at: Tensor) -> Tensor:
        """``at``, but for rows that have a place of their own; [B]."""
        assert self.homes is not None
        known, places = self.homes
        near = torch.searchsorted(known, rows).clamp_(max=len(known) - 1)
        return places.index_select(0, near).where(known.index_select(0, near) == rows, at)

    def ranks(
        self, vectors: Tensor, head: Tensor, *, by_likeness: bool, wanted: Tensor | None = None
    ) -> Tensor:
        """The share of the negatives of each threshold that score higher than each row; [G - 1, B].

        With c the entries of grades up to k, v_c their weights, normalised to sum 1, and w the
        head, which scores them as it is now::

            R_k(s) = sum_c v_c 1[s < w.c]                            the share above a score
            direct:        R_k(w.x)
            by likeness:   sum_c softmax_c(40 cos(x, c)) R_k(w.c)

        Args:
            vectors: of the rows, [B, D].
            head: w, [D].
            by_likeness: take the ranks of the entries that are most like a row, not its own.
            wanted: rows that have to be told, [B] bool; others may be left at 0. None: all.
        """
        entries, vectors = self._entries(), vectors.to(self.vectors.dtype)
        if not by_likeness:
            by_grade = self._by_grade(scored(entries.vectors, head))
            return direct_ranks(scored(vectors, head), by_grade, entries.weights)
        if wanted is None or vectors.is_cuda:  # to count them there would be to wait for it
            return likely_ranks(vectors, entries, head)
        rows = wanted.nonzero().squeeze(1)
        found = likely_ranks(vectors.index_select(0, rows), entries, head)
        return found.new_zeros(len(found), len(vectors)).index_copy_(1, rows, found)

    def _by_grade(self, scores: Tensor) -> Tensor:
        """Of the negatives [C], a row for each grade; -inf where nothing is; [G - 1, longest]."""
        if self.settled is None:
            scores = scores.masked_fill(~self.taken[: self.n_negative], -torch.inf)
        table = scores.new_full((len(self.shares) - 1, self.longest), -torch.inf)
        table.view(-1).index_copy_(0, self.cells, scores)
        return table

    def _entries(self) -> Entries:
        """The negatives. Once all places are taken, weights stay as they are, and are kept."""
        vectors = self.vectors[: self.n_negative]
        if self.settled is not None:
            return Entries(vectors, *self.settled)
        none = len(self.shares) - 1
        owners = self.owners.where(self.taken, none)[: self.n_negative]
        weights = weights_of(owners, self.shares)
        if bool(self.taken.all()):
            self.settled = owners, weights
        return Entries(vectors, owners, weights)

    def state(self) -> dict[str, Tensor]:
        return {"vectors": self.vectors, "taken": self.taken, "counts": self.counts}

    def load(self, state: Mapping[str, Tensor]) -> None:
        own = self.state()
        if any(name not in state or state[name].shape != own[name].shape for name in own):
            raise UserError(
                "the checkpoint's cache has other sizes: it was made by another version",
                hint="start anew without --resume",
            )
        for name, tensor in own.items():
            tensor.copy_(state[name])
        self.settled = None


def homes(
    grades: Tensor, counts: Tensor, starts: Tensor, size: int
) -> tuple[Tensor, Tensor] | None:
    """Rows of grades that have a place for each of theirs, ascending, and these places."""
    small = counts <= size
    rows = small[grades].nonzero().squeeze(1)
    if len(rows) == 0:
        return None
    theirs, fewer = grades[rows], counts * small
    places, order = torch.empty_like(rows), theirs.argsort(stable=True)
    places[order] = torch.arange(len(rows), device=rows.device)
    return rows, places + (starts - (fewer.cumsum(0) - fewer))[theirs]


def cells(owners: Tensor, starts: Tensor, longest: int) -> Tensor:
    """Where each entry is in a table with a row for each grade, numbered row by row; [C]."""
    numbers = torch.arange(len(owners), device=owners.device)
    return numbers + (torch.arange(len(starts), device=owners.device) * longest - starts)[owners]


# ---------------------------------------------------------------------------- among entries


class Entries(NamedTuple):
    """Negatives to stand among."""

    vectors: Tensor  # [C, D]
    owners: Tensor  # the grade of each, or the highest, where there is nothing; [C]
    weights: Tensor  # of an entry of each grade at each threshold; [G - 1, G]


def weights_of(owners: Tensor, shares: Tensor) -> Tensor:
    """What an entry of each grade weighs at each threshold, if it counts there; [G - 1, G].

    All entries that count at a threshold weigh 1 together, and those of a grade its share of that.
    """
    counts = torch.bincount(owners, minlength=len(shares))
    grades = torch.arange(len(shares), device=owners.device)
    theirs = shares * ((grades <= grades[:-1, None]) & (counts > 0))
    return theirs / positive(theirs.sum(dim=1, keepdim=True)) / counts.clamp(min=1)


def direct_ranks(asked: Tensor, by_grade: Tensor, weights: Tensor) -> Tensor:
    """The weight of the entries whose scores are higher than each of ``asked``; [G - 1, B].

    Args:
        asked: [B].
        by_grade: the scores of entries, a row for each grade; [G - 1, S].
        weights: of an entry of each grade at each threshold; [G - 1, G].
    """
    ordered = ascending_rows(by_grade)
    up_to = torch.searchsorted(ordered, asked.expand(len(ordered), -1).contiguous(), right=True)
    higher = (by_grade.shape[1] - up_to).to(asked.dtype)
    return torch.mm(weights[:, :-1], higher, out=torch.empty_like(higher))  # not by autocast


def likely_ranks(vectors: Tensor, entries: Entries, head: Tensor) -> Tensor:
    """The mean rank of the entries, each as much as it is like a row; [G - 1, B]."""
    ordered, order = ascending(-scored(entries.vectors, head))
    places, owners, found = own_places(ordered, order), entries.owners.index_select(0, order), []
    for some in few(entries):
        own = weights_before(places, owners, some)
        counted = (some > 0).to(own.dtype).index_select(1, entries.owners)
        found.append(means_by_likeness(vectors, entries.vectors, own, counted))
    return torch.cat(found)


def few(entries: Entries) -> Sequence[Tensor]:
    """The weights at some thresholds, then at others: tables have no more numbers than vectors."""
    found: Sequence[Tensor] = entries.weights.split(entries.vectors.shape[1])
    return found


def weights_before(places: Tensor, owners: Tensor, weights: Tensor) -> Tensor:
    """The weight of all entries before each place; [T, B].

    Args:
        places: how many entries are before, [B].
        owners: the grades of the entries, in their order; [C].
        weights: of an entry of each grade, [T, G].
    """
    sums = weights.index_select(1, owners).cumsum(dim=1)
    return pad(sums, (1, 0)).index_select(1, places)


def own_places(ordered: Tensor, order: Tensor) -> Tensor:
    """How many are before each, in the order that they had before ``ascending``; [C].

    Of equal ones as many as before the first of them.
    """
    places = torch.arange(len(order), device=order.device)
    places[1:].masked_fill_(ordered[1:] == ordered[:-1], 0)
    return torch.empty_like(order).index_copy_(0, order, places.cummax(0).values)


def ascending_rows(scores: Tensor) -> Tensor:
    """``scores.sort(dim=1).values``; NumPy takes a fifth of the time, on a processor."""
    if not scores.is_cpu:
        return scores.sort(dim=1).values
    return torch.from_numpy(np.sort(scores.detach().numpy(), axis=1))


def ascending(scores: Tensor) -> tuple[Tensor, Tensor]:
    """``scores.sort()``, equal ones in any order; NumPy takes half of the time, on a processor."""
    if not scores.is_cpu:
        values, order = scores.sort()
        return values, order
    order = torch.from_numpy(scores.detach().numpy().argsort())
    return scores.index_select(0, order), order


def scored(vectors: Tensor, head: Tensor) -> Tensor:
    """w.c of each; [C, D] and [D] -> [C].

    Of a number of rows that is no multiple of ``ALIKE`` the last ones would be rounded otherwise,
    and a row's own entry might be above it. Autocast leaves alone what goes into a given tensor.
    """
    n = len(vectors)
    if n % ALIKE:
        vectors = pad(vectors, (0, 0, 0, -n % ALIKE))
    return torch.mv(vectors, head, out=vectors.new_empty(len(vectors)))[:n]


def means_by_likeness(vectors: Tensor, entries: Tensor, values: Tensor, counted: Tensor) -> Tensor:
    """sum_c softmax_c(40 cos(x, c)) values_c over the entries that are counted; [T, B].

    The cosines are scaled for powers of 2, which take a third of the time that powers of e take.
    These are within e^-40 .. e^40: nothing has to be taken off. It goes block by block, so that
    what is made of some entries is still near when it is summed up.

    Args:
        vectors: x, [B, D].
        entries: c, [C, D].
        values: [T, C].
        counted: 1 or 0, [T, C].
    """
    entries = unit(entries)
    asked = unit(vectors, SHARPNESS / math.log(2)).T
    columns = torch.cat([counted, counted * values]).to(entries.dtype)
    sums = columns.new_zeros(len(columns), len(vectors))
    likeness = columns.new_empty(BLOCK, len(vectors))
    for some, theirs in zip(entries.split(BLOCK), columns.split(BLOCK, 1), strict=True):
        sums.addmm_(theirs, torch.mm(some, asked, out=likeness[: len(some)]).exp2_())
    total, found = sums.chunk(2)
    return found / positive(total)


def unit(vectors: Tensor, length: float = 1.0) -> Tensor:
    """Rows of one length; 0 stays 0."""
    return vectors * (length / positive(torch.linalg.vector_norm(vectors, dim=1, keepdim=True)))


def positive(values: Tensor) -> Tensor:
    """To divide by: what is 0 is a little more."""
    return values.clamp(min=LITTLE)
