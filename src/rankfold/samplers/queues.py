"""Where a row would stand among all negatives, told from the latest rows of each grade."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from rankfold.errors import UserError

SHARPNESS = 40.0  # of the softmax over cosines that finds a row's like
BLOCK = 512  # entries whose likeness is held at a time
LITTLE = 1e-30  # far below all sums here, the least of which is e^-40


class Queues:
    """The latest feature vectors of each grade, first in, first out.

    They are about as many of each grade, while grades are rarely as frequent: each entry stands for
    its grade's share of the data, divided among the entries of the grade; [cba], Alg. 1.

    Departs from the paper, where every grade counts alike (``shares`` of ones are that), and where
    all have as many entries, of a grade with fewer rows several copies (decision 22).
    """

    def __init__(self, shares: Tensor, sizes: Sequence[int], width: int) -> None:
        """``shares`` [G] are how frequent each grade is, ``sizes`` how many of it to keep."""
        device = shares.device
        self.shares, self.sizes = shares, torch.tensor(sizes, device=device)
        self.starts = self.sizes.cumsum(0) - self.sizes
        self.grades = torch.arange(len(sizes), device=device).repeat_interleave(self.sizes)
        self.ones = torch.eye(len(sizes), dtype=torch.int64, device=device)
        self.vectors = torch.zeros(sum(sizes), width, device=device)  # one grade after another
        self.counts = torch.zeros_like(self.sizes)  # that ever came
        self.least, self.n_negative = min(sizes), sum(sizes[:-1])  # the highest is never negative
        self.settled: tuple[Tensor, Tensor] | None = None  # weights that do not change any more

    def push(self, vectors: Tensor, grades: Tensor) -> None:
        """Take in a batch [B, D] with grades [B]; of more than fit, the last ones stay."""
        if len(grades) == 0:
            return
        came = self.ones.index_select(0, grades).cumsum_(0).add_(self.counts)  # up to each row
        self.counts.copy_(came[-1])
        places = came.gather(1, grades[:, None]).squeeze(1).sub_(1)
        if len(grades) > self.least:
            stays = places >= (self.counts - self.sizes)[grades]
            vectors, grades, places = vectors[stays], grades[stays], places[stays]
        at = places.remainder_(self.sizes.index_select(0, grades))
        at += self.starts.index_select(0, grades)
        self.vectors.index_copy_(0, at, vectors.detach().to(self.vectors.dtype))

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
        # of all grades, so that the sums are rounded as those of as many rows in a batch are
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
        filled, grades = self.counts.minimum(self.sizes), self.grades[: self.n_negative]
        places = torch.arange(self.n_negative, device=grades.device) - self.starts[grades]
        weights = (self.shares / filled.clamp(min=1))[grades] * (places < filled[grades])
        thresholds = torch.arange(len(self.shares) - 1, device=grades.device)
        weights = (thresholds[:, None] >= grades) * weights
        weights /= positive(weights.sum(dim=1, keepdim=True))
        found = weights, (weights > 0).to(weights.dtype)
        if bool(((filled == self.sizes) | (self.shares == 0)).all()):
            self.settled = found
        return found

    def state(self) -> dict[str, Tensor]:
        return {"vectors": self.vectors, "counts": self.counts}

    def load(self, state: Mapping[str, Tensor]) -> None:
        if state["vectors"].shape != self.vectors.shape:
            raise UserError(
                "the checkpoint's cache has other sizes: it was made by another version",
                hint="start anew without --resume",
            )
        self.vectors.copy_(state["vectors"])
        self.counts.copy_(state["counts"])
        self.settled = None


def scored(vectors: Tensor, head: Tensor) -> Tensor:
    """w.c of each; [C, D] and [D] -> [C]. Into a tensor of its own: autocast leaves that alone."""
    return torch.mv(vectors, head, out=vectors.new_empty(len(vectors)))


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
