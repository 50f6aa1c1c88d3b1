"""CBA's cross-batch cache: a row's rank among all negatives, from recent rows of each grade."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from rankfold.errors import UserError

_SHARPNESS = 40.0  # of the softmax over cosines
_ROW_MULTIPLE = 16  # products round all rows in the same way if this divides their number
_BLOCK = 512  # entries whose likeness is held at a time
_MIN_DIVISOR = 1e-30  # far below all sums here, the smallest of which is e^-40


class CrossBatchCache:
    """A queue of feature vectors for each grade: first in, first out; [cba], Alg. 1.

    A grade with no more rows than ``size`` has a fixed place for each row instead; with ``copies``,
    it has as many places as the others, and several vectors of each row. Queues have
    about the same length, while grades differ in frequency: the entries of a grade share the
    weight of the grade in the data.

    State and steps take O(grades x size x width) numbers, however many rows there are.

    Departs from the paper, which has ``copies`` and ``shares`` of ones (decision 22).
    """

    def __init__(
        self, grades: Tensor, shares: Tensor, size: int, width: int, *, copies: bool = False
    ) -> None:
        """``grades`` [n] of all rows, ``shares`` [G] the weight of each grade."""
        device, counts = shares.device, torch.bincount(grades, minlength=len(shares))
        self.grades, self.shares, self.size = grades, shares, size
        self.sizes = size * (counts > 0) if copies else counts.clamp(max=size)
        self.starts = self.sizes.cumsum(0) - self.sizes
        self.n_negative = int(self.starts[-1])  # entries; the highest grade is never negative
        self.fixed = None if copies else _fixed_places(grades, counts, self.starts, size)
        numbers = torch.arange(len(shares), device=device)
        self.owners = numbers.repeat_interleave(self.sizes)  # the grade of each entry
        self.longest = int(self.sizes[:-1].max())
        negatives = torch.arange(self.n_negative, device=device)
        shifts = (numbers * self.longest - self.starts)[self.owners[: self.n_negative]]
        self.cells = negatives + shifts  # their places in a flat table with a row per grade
        self.ones = torch.eye(len(shares), dtype=torch.int64, device=device)
        length = -(-len(self.owners) // _ROW_MULTIPLE) * _ROW_MULTIPLE
        self.vectors = torch.zeros(length, width, device=device)  # one grade after another
        self.taken = torch.zeros_like(self.owners, dtype=torch.bool)
        self.counts = torch.zeros_like(self.sizes)  # rows pushed so far, by grade
        self.final: tuple[Tensor, Tensor] | None = None  # owners and weights of a full cache

    def push(self, vectors: Tensor, rows: Tensor) -> None:
        """Add a batch [B, D] of rows [B]; if too many, the last ones stay."""
        if len(rows) == 0:
            return
        grades = self.grades.index_select(0, rows)
        pushed = self.ones.index_select(0, grades).cumsum_(0).add_(self.counts)  # up to each row
        self.counts.copy_(pushed[-1])
        places = pushed.gather(1, grades[:, None]).squeeze(1).sub_(1)
        if len(rows) > self.size:
            stays = places >= (self.counts - self.sizes)[grades]
            vectors, rows, grades, places = (x[stays] for x in (vectors, rows, grades, places))
        at = places.remainder_(self.sizes.index_select(0, grades))
        at += self.starts.index_select(0, grades)
        if self.fixed is not None:
            known, fixed = self.fixed
            near = torch.searchsorted(known, rows).clamp_(max=len(known) - 1)
            at = fixed.index_select(0, near).where(known.index_select(0, near) == rows, at)
        self.vectors.index_copy_(0, at, vectors.detach().to(self.vectors.dtype))
        if self.final is None:
            self.taken.index_fill_(0, at, value=True)

    def ranks(
        self, vectors: Tensor, head: Tensor, *, by_likeness: bool, wanted: Tensor | None = None
    ) -> Tensor:
        """The share of the negatives of each threshold that score higher than each row; [G - 1, B].

        With c the entries of grades up to k, v_c their weights, normalised to sum 1, and w the
        current head, which scores them::

            R_k(s) = sum_c v_c 1[s < w.c]                            the share above a score
            direct:        R_k(w.x)
            by likeness:   sum_c softmax_c(40 cos(x, c)) R_k(w.c)

        Args:
            vectors: of the rows, [B, D].
            head: w, [D].
            by_likeness: use the ranks of the entries most like a row, not the rank of its score.
            wanted: rows whose ranks are needed, [B] bool; others may be 0. None: all.
        """
        entries, vectors = self._entries(), vectors.to(self.vectors.dtype)
        if not by_likeness:
            by_grade = self._by_grade(scores_of(entries.vectors, head))
            return direct_ranks(scores_of(vectors, head), by_grade, entries.weights)
        if wanted is None or vectors.is_cuda:  # counting them would wait for the GPU
            return likeness_ranks(vectors, entries, head)
        rows = wanted.nonzero().squeeze(1)
        ranks = likeness_ranks(vectors.index_select(0, rows), entries, head)
        return ranks.new_zeros(len(ranks), len(vectors)).index_copy_(1, rows, ranks)

    def _by_grade(self, scores: Tensor) -> Tensor:
        """The scores of negatives [C] as a row per grade, -inf elsewhere; [G - 1, longest]."""
        if self.final is None:
            scores = scores.masked_fill(~self.taken[: self.n_negative], -torch.inf)
        table = scores.new_full((len(self.shares) - 1, self.longest), -torch.inf)
        table.view(-1).index_copy_(0, self.cells, scores)
        return table

    def _entries(self) -> "CachedNegatives":
        """The negatives. Once all places are taken, owners and weights no longer change."""
        vectors = self.vectors[: self.n_negative]
        if self.final is not None:
            return CachedNegatives(vectors, *self.final)
        none = len(self.shares) - 1
        owners = self.owners.where(self.taken, none)[: self.n_negative]
        weights = _weights_of(owners, self.shares)
        if bool(self.taken.all()):
            self.final = owners, weights
        return CachedNegatives(vectors, owners, weights)

    def state(self) -> dict[str, Tensor]:
        return {"vectors": self.vectors, "taken": self.taken, "counts": self.counts}

    def load(self, state: Mapping[str, Tensor]) -> None:
        own = self.state()
        if any(name not in state or state[name].shape != own[name].shape for name in own):
            raise UserError(
                "the checkpoint's cache has other sizes: another version wrote it",
                hint="start again without --resume",
            )
        for name, tensor in own.items():
            tensor.copy_(state[name])
        self.final = None


def _fixed_places(
    grades: Tensor, counts: Tensor, starts: Tensor, size: int
) -> tuple[Tensor, Tensor] | None:
    """The rows of grades with at most ``size`` rows, ascending, and their fixed places."""
    small = counts <= size
    rows = small[grades].nonzero().squeeze(1)
    if len(rows) == 0:
        return None
    theirs, fewer = grades[rows], counts * small
    places, order = torch.empty_like(rows), theirs.argsort(stable=True)
    places[order] = torch.arange(len(rows), device=rows.device)
    return rows, places + (starts - (fewer.cumsum(0) - fewer))[theirs]


class CachedNegatives(NamedTuple):
    """The entries that a row is ranked among."""

    vectors: Tensor  # [C, D]
    owners: Tensor  # the grade of each entry; the highest grade marks an empty place; [C]
    weights: Tensor  # of an entry of each grade at each threshold; [G - 1, G]


def _weights_of(owners: Tensor, shares: Tensor) -> Tensor:
    """The weight of an entry of each grade at each threshold, 0 if it is positive; [G - 1, G].

    The entries of a threshold have a total weight of 1, divided among grades by ``shares``.
    """
    counts = torch.bincount(owners, minlength=len(shares))
    grades = torch.arange(len(shares), device=owners.device)
    theirs = shares * ((grades <= grades[:-1, None]) & (counts > 0))
    return theirs / _as_divisor(theirs.sum(dim=1, keepdim=True)) / counts.clamp(min=1)


def direct_ranks(scores: Tensor, by_grade: Tensor, weights: Tensor) -> Tensor:
    """The weight of the entries that score higher than each of ``scores``; [G - 1, B].

    Args:
        scores: [B].
        by_grade: the scores of entries, a row for each grade; [G - 1, S].
        weights: of an entry of each grade at each threshold; [G - 1, G].
    """
    if scores.is_cpu:  # NumPy takes a fifth of the time
        ordered = torch.from_numpy(np.sort(by_grade.detach().numpy(), axis=1))
    else:
        ordered = by_grade.sort(dim=1).values
    up_to = torch.searchsorted(ordered, scores.expand(len(ordered), -1).contiguous(), right=True)
    higher = (by_grade.shape[1] - up_to).to(scores.dtype)
    return torch.mm(weights[:, :-1], higher, out=torch.empty_like(higher))  # `out`: no autocast


def likeness_ranks(vectors: Tensor, entries: CachedNegatives, head: Tensor) -> Tensor:
    """The mean rank of the entries, weighted by their likeness to a row; [G - 1, B]."""
    ordered, order = sort_ascending(-scores_of(entries.vectors, head))
    before, owners = counts_before(ordered, order), entries.owners.index_select(0, order)
    ranks = []
    for weights in entries.weights.split(entries.vectors.shape[1]):  # tables as large as vectors
        own = weights_before(before, owners, weights)
        counted = (weights > 0).to(own.dtype).index_select(1, entries.owners)
        ranks.append(_means_by_likeness(vectors, entries.vectors, own, counted))
    return torch.cat(ranks)


def weights_before(places: Tensor, owners: Tensor, weights: Tensor) -> Tensor:
    """The weight of all entries before each place; [T, B].

    ``places`` [B] count the entries before, ``owners`` [C] are the grades of the entries in their
    order, ``weights`` [T, G] those of an entry of each grade.
    """
    sums = weights.index_select(1, owners).cumsum(dim=1)
    return pad(sums, (1, 0)).index_select(1, places)


def counts_before(ordered: Tensor, order: Tensor) -> Tensor:
    """How many values are smaller than each, in the order before ``sort_ascending``; [C]."""
    places = torch.arange(len(order), device=order.device)
    places[1:].masked_fill_(ordered[1:] == ordered[:-1], 0)
    return torch.empty_like(order).index_copy_(0, order, places.cummax(0).values)


def sort_ascending(scores: Tensor) -> tuple[Tensor, Tensor]:
    """``scores.sort()``, ties in any order; on a CPU NumPy takes half of the time."""
    if not scores.is_cpu:
        values, order = scores.sort()
        return values, order
    order = torch.from_numpy(scores.detach().numpy().argsort())
    return scores.index_select(0, order), order


def scores_of(vectors: Tensor, head: Tensor) -> Tensor:
    """w.c of each; [C, D] and [D] -> [C].

    Rows are padded to a multiple of ``_ROW_MULTIPLE``: otherwise the last ones round differently,
    and a row's own entry might be above it. With ``out`` autocast does not apply.
    """
    n = len(vectors)
    if n % _ROW_MULTIPLE:
        vectors = pad(vectors, (0, 0, 0, -n % _ROW_MULTIPLE))
    return torch.mv(vectors, head, out=vectors.new_empty(len(vectors)))[:n]


def _means_by_likeness(vectors: Tensor, entries: Tensor, values: Tensor, counted: Tensor) -> Tensor:
    """sum_c softmax_c(40 cos(x, c)) values_c over the entries that are counted; [T, B].

    The cosines are scaled for powers of 2, which take a third of the time of powers of e. Those are
    within e^-40 .. e^40, so no maximum is subtracted. Blocks of entries stay in the cache until
    they are summed.

    ``counted`` [T, C] is 1 or 0.
    """
    entries = normalize(entries, eps=_MIN_DIVISOR)
    queries = normalize(vectors, eps=_MIN_DIVISOR).mul_(_SHARPNESS / math.log(2)).T
    columns = torch.cat([counted, counted * values]).to(entries.dtype)
    sums = columns.new_zeros(len(columns), len(vectors))
    likeness = columns.new_empty(_BLOCK, len(vectors))
    for some, theirs in zip(entries.split(_BLOCK), columns.split(_BLOCK, 1), strict=True):
        sums.addmm_(theirs, torch.mm(some, queries, out=likeness[: len(some)]).exp2_())
    total, weighted = sums.chunk(2)
    return weighted / _as_divisor(total)


def _as_divisor(values: Tensor) -> Tensor:
    """The values, with 0 replaced by a tiny number."""
    return values.clamp(min=_MIN_DIVISOR)
