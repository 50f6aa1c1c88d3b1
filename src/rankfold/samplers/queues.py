"""Where a row would stand among all negatives, told from the latest rows of each grade."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import pad

SHARPNESS = 40.0  # of the softmax over cosines that finds a row's like
LITTLE = 1e-30  # far below all sums here, the least of which is e^-40


class Queues:
    """The latest feature vectors of each grade, first in, first out.

    They are as many of each grade, while grades are rarely as frequent: each entry stands for its
    grade's share of the data, divided among the entries of the grade; [cba], Alg. 1.

    Departs from the paper, where every entry counts alike (``shares`` of ones are that).
    """

    def __init__(self, shares: Tensor, size: int, width: int) -> None:
        """``shares`` [G] are how frequent each grade is."""
        self.shares = shares
        self.vectors = torch.zeros(len(shares), size, width, device=shares.device)
        self.counts = torch.zeros_like(shares, dtype=torch.int64)  # that ever came
        self.settled: Tensor | None = None  # weights, when they do not change any more

    @property
    def size(self) -> int:
        return self.vectors.shape[1]

    def push(self, vectors: Tensor, grades: Tensor) -> None:
        """Take in a batch [B, D] with grades [B]; of more than fit, the last ones stay."""
        if len(grades) == 0:
            return
        mine = grades[:, None] == torch.arange(len(self.shares), device=grades.device)
        came = self.counts + mine.cumsum(0)  # of each grade, up to each row
        self.counts.copy_(came[-1])
        places = came.gather(1, grades[:, None]).squeeze(1) - 1
        if len(grades) > self.size:
            stays = places >= self.counts[grades] - self.size
            vectors, grades, places = vectors[stays], grades[stays], places[stays]
        self.vectors[grades, places % self.size] = vectors.detach().to(self.vectors.dtype)

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
        weights = self._weights()
        # of all grades, so that the sums are rounded as those of as many rows in a batch are
        scores = (self.vectors.flatten(0, 1) @ head)[: weights.shape[1]]
        if not by_likeness:
            return shares_above(vectors @ head, scores, weights)
        higher, total = weights_above(scores, weights), positive(weights.sum(dim=1, keepdim=True))
        if wanted is None or vectors.is_cuda:  # to count them there would be to wait for it
            return self._means(vectors, higher, weights > 0) / total
        rows = wanted.nonzero().squeeze(1)
        found = self._means(vectors.index_select(0, rows), higher, weights > 0) / total
        return found.new_zeros(len(found), len(vectors)).index_copy_(1, rows, found)

    def _means(self, vectors: Tensor, values: Tensor, counted: Tensor) -> Tensor:
        """Of values [T, C] of entries, of those that are counted, by their likeness; [T, B].

        The cosines are scaled for powers of 2, which take a third of the time that powers of e
        take. These are within e^-40 .. e^40: nothing has to be taken off. It goes grade by grade,
        so that what is made of some entries is still near when it is summed up.
        """
        entries = unit(self.vectors[:-1].flatten(0, 1))
        asked = unit(vectors.to(entries.dtype), SHARPNESS / math.log(2)).T
        columns = torch.cat([counted, counted * values]).to(entries.dtype)
        sums = columns.new_zeros(len(columns), len(vectors))
        likeness = columns.new_empty(self.size, len(vectors))
        for some, theirs in zip(entries.split(self.size), columns.split(self.size, 1), strict=True):
            torch.mm(some, asked, out=likeness).exp2_()
            sums.addmm_(theirs, likeness)
        total, found = sums.chunk(2)
        return found / positive(total)

    def _weights(self) -> Tensor:
        """What entries weigh at each threshold, one grade after another; [G - 1, C].

        The highest grade is no threshold's negative. Places that nothing has come to yet weigh
        nothing. Once all are taken, weights stay as they are, and are kept.
        """
        if self.settled is not None:
            return self.settled
        filled = self.counts[:-1].clamp(max=self.size)
        there = torch.arange(self.size, device=filled.device) < filled[:, None]
        weights = torch.where(there, (self.shares[:-1] / filled.clamp(min=1))[:, None], 0.0)
        grades = torch.arange(len(filled), device=filled.device)
        below = grades[:, None] >= grades  # [k, grade]
        found = (below[:, :, None] * weights).flatten(1)
        if bool(((filled == self.size) | (self.shares[:-1] == 0)).all()):
            self.settled = found
        return found

    def state(self) -> dict[str, Tensor]:
        return {"vectors": self.vectors, "counts": self.counts}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.vectors.copy_(state["vectors"])
        self.counts.copy_(state["counts"])
        self.settled = None


def shares_above(asked: Tensor, scores: Tensor, weights: Tensor) -> Tensor:
    """The weight of ``scores`` [C] above each of ``asked`` [B], a share of all; [T, B].

    ``weights`` [T, C]; a row of them that is all 0 has shares 0.
    """
    ordered, order = scores.sort()
    sums = pad(weights.index_select(1, order).cumsum(dim=1), (1, 0))
    total = sums[:, -1:]
    up_to = sums.index_select(1, torch.searchsorted(ordered, asked.contiguous(), right=True))
    return ((total - up_to) / positive(total)).clamp(min=0.0)


def weights_above(scores: Tensor, weights: Tensor) -> Tensor:
    """The weight of the scores [C] above each of themselves; [T, C].

    From the highest on: what came before, and for a score as high as the one before the same.
    """
    ordered, order = scores.sort(descending=True)
    weights = weights.index_select(1, order)
    before = weights.cumsum(dim=1).sub_(weights)
    before[:, 1:] *= ordered[1:] < ordered[:-1]
    return torch.empty_like(before).index_copy_(1, order, before.cummax(dim=1).values)


def unit(vectors: Tensor, length: float = 1.0) -> Tensor:
    """Rows of one length; 0 stays 0."""
    return vectors * (length / positive(torch.linalg.vector_norm(vectors, dim=1, keepdim=True)))


def positive(values: Tensor) -> Tensor:
    """To divide by: what is 0 is a little more."""
    return values.clamp(min=LITTLE)
