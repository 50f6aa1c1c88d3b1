"""Where a row would stand among all negatives, told from the latest rows of each grade."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import pad

from rankfold.errors import UserError

SHARPNESS = 40.0  # of the softmax over cosines that finds a row's like
ALIKE = 16  # rows, of which products are rounded alike
BLOCK = 512  # entries whose likeness is held at a time
LITTLE = 1e-30  # far below all sums here, the least of which is e^-40


class Queues:
    """The latest feature vectors of each grade.

    First in, first out; where a grade has no more rows than its queue would have places, each row
    has a place of its own. They are about as many of each grade, while grades are rarely as
    frequent: each entry stands for its grade's share of the data, divided among the entries of the
    grade; [cba], Alg. 1.

    Departs from the paper, where every grade counts alike (``shares`` of ones are that), and where
    all have as many entries, of a grade with fewer rows several copies (decision 22).
    """

    def __init__(self, grades: Tensor, shares: Tensor, size: int, width: int) -> None:
        """``grades`` [n] are those of all rows, ``shares`` [G] how much each grade counts."""
        device, counts = shares.device, torch.bincount(grades, minlength=len(shares))
        self.grades, self.shares, self.size = grades, shares, size
        self.sizes = counts.clamp(1, size)
        self.starts = self.sizes.cumsum(0) - self.sizes
        self.n_negative = int(self.starts[-1])  # entries; the highest grade is never negative
        own = homes(grades, counts, self.starts, size)
        self.homes = own if bool((own >= 0).any()) else None
        numbers = torch.arange(len(shares), device=device)
        self.owners = numbers.repeat_interleave(self.sizes)  # the grade of each entry
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
            own = self.homes.index_select(0, rows)
            at = own.where(own >= 0, at)
        self.vectors.index_copy_(0, at, vectors.detach().to(self.vectors.dtype))
        if self.settled is None:
            self.taken.index_fill_(0, at, value=True)

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
        weights, counted = self._weights()
        vectors = vectors.to(self.vectors.dtype)
        scores = scored(self.vectors, head)[: self.n_negative]
        if not by_likeness:
            return shares_above(scored(vectors, head), scores, weights)
        entries, own = self.vectors[: self.n_negative], weights_above(scores, weights)
        if wanted is None or vectors.is_cuda:  # to count them there would be to wait for it
            return means_by_likeness(vectors, entries, own, counted)
        rows = wanted.nonzero().squeeze(1)
        found = means_by_likeness(vectors.index_select(0, rows), entries, own, counted)
        return found.new_zeros(len(found), len(vectors)).index_copy_(1, rows, found)

    def _weights(self) -> tuple[Tensor, Tensor]:
        """What entries weigh at each threshold, with sums of 1, and whether anything; [G - 1, C].

        Places that nothing has come to yet weigh nothing. Once all are taken, weights stay as they
        are, and are kept.
        """
        if self.settled is not None:
            return self.settled
        owners, taken = self.owners[: self.n_negative], self.taken[: self.n_negative]
        filled = torch.zeros_like(self.shares).index_add_(0, owners, taken.to(self.shares.dtype))
        weights = (self.shares / filled.clamp(min=1))[owners] * taken
        thresholds = torch.arange(len(self.shares) - 1, device=owners.device)
        weights = (thresholds[:, None] >= owners) * weights
        weights /= positive(weights.sum(dim=1, keepdim=True))
        found = weights, (weights > 0).to(weights.dtype)
        if bool((self.taken | (self.shares == 0)[self.owners]).all()):
            self.settled = found
        return found

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


def homes(grades: Tensor, counts: Tensor, starts: Tensor, size: int) -> Tensor:
    """The place of each row of a grade that has one for all of its rows, else -1; [n]."""
    order = grades.argsort(stable=True)
    places = torch.empty_like(order)
    places[order] = torch.arange(len(order), device=order.device)
    places += (starts - (counts.cumsum(0) - counts))[grades]
    return places.where((counts <= size)[grades], -1)


def scored(vectors: Tensor, head: Tensor) -> Tensor:
    """w.c of each; [C, D] and [D] -> [C].

    Of a number of rows that is no multiple of ``ALIKE`` the last ones would be rounded otherwise,
    and a row's own entry might be above it. Autocast leaves alone what goes into a given tensor.
    """
    n = len(vectors)
    if n % ALIKE:
        vectors = pad(vectors, (0, 0, 0, -n % ALIKE))
    return torch.mv(vectors, head, out=vectors.new_empty(len(vectors)))[:n]


def shares_above(asked: Tensor, scores: Tensor, weights: Tensor) -> Tensor:
    """The weight of ``scores`` [C] above each of ``asked`` [B], a share of all; [T, B].

    ``weights`` [T, C]; a row of them that is all 0 has shares 0.
    """
    ordered, order = ascending(scores)
    sums = pad(weights.index_select(1, order).cumsum(dim=1), (1, 0))
    total = sums[:, -1:]
    up_to = sums.index_select(1, torch.searchsorted(ordered, asked.contiguous(), right=True))
    return ((total - up_to) / positive(total)).clamp(min=0.0)


def weights_above(scores: Tensor, weights: Tensor) -> Tensor:
    """The weight of the scores [C] above each of themselves; [T, C].

    From the highest on: what came before, and for a score as high as the one before the same.
    """
    ordered, order = ascending(-scores)
    weights = weights.index_select(1, order)
    before = weights.cumsum(dim=1).sub_(weights)
    before[:, 1:] *= ordered[1:] > ordered[:-1]
    return torch.empty_like(before).index_copy_(1, order, before.cummax(dim=1).values)


def ascending(scores: Tensor) -> tuple[Tensor, Tensor]:
    """``scores.sort()``, equal ones in any order; NumPy takes half of the time, on a processor."""
    if not scores.is_cpu:
        values, order = scores.sort()
        return values, order
    order = torch.from_numpy(scores.detach().numpy().argsort())
    return scores.index_select(0, order), order


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
