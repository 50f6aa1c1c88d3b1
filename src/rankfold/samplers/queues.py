"""Where a row would stand among all negatives, told from the latest rows of each grade."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import normalize

SHARPNESS = 40.0  # of the softmax over cosines that finds a row's like


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

    @property
    def size(self) -> int:
        return self.vectors.shape[1]

    def push(self, vectors: Tensor, grades: Tensor) -> None:
        """Take in a batch [B, D] with grades [B]; of more than fit, the last ones stay."""
        mine = torch.nn.functional.one_hot(grades, len(self.shares))
        order = (mine.cumsum(0) - 1).gather(1, grades[:, None]).squeeze(1)  # among its grade's
        came = mine.sum(dim=0)
        if len(grades) > self.size:
            stays = order >= came[grades] - self.size
            vectors, grades, order = vectors[stays], grades[stays], order[stays]
        places = (self.counts[grades] + order) % self.size
        self.vectors[grades, places] = vectors.detach().to(self.vectors.dtype)
        self.counts += came

    def ranks(self, vectors: Tensor, head: Tensor, *, by_likeness: bool) -> Tensor:
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
        """
        entries, weights = self._entries()
        # of all grades, so that the sums are rounded as those of as many rows in a batch are
        scores = (self.vectors.flatten(0, 1) @ head)[: len(entries)]
        if not by_likeness:
            return shares_above(vectors @ head, scores, weights)
        there = (weights > 0).to(scores.dtype)
        summed = torch.cat([there, there * shares_above(scores, scores, weights)])
        asked, kept = SHARPNESS * normalize(vectors, dim=1), normalize(entries, dim=1)
        sums = torch.zeros(len(summed), len(asked), dtype=summed.dtype, device=summed.device)
        for some, columns in zip(kept.split(self.size), summed.split(self.size, 1), strict=True):
            likeness = (some @ asked.T).exp_()  # within e^-40 .. e^40: nothing has to be taken off
            sums += columns @ likeness.to(columns.dtype)
        total, found = sums.chunk(2)  # [G - 1, B] each
        return found / torch.where(total > 0, total, 1.0)

    def _entries(self) -> tuple[Tensor, Tensor]:
        """All that are negatives of a threshold [C, D], and what each weighs there [G - 1, C].

        The highest grade never is. Places that nothing has come to yet weigh nothing.
        """
        filled = self.counts[:-1].clamp(max=self.size)
        there = torch.arange(self.size, device=filled.device) < filled[:, None]
        weights = torch.where(there, (self.shares[:-1] / filled.clamp(min=1))[:, None], 0.0)
        grades = torch.arange(len(filled), device=filled.device)
        below = grades[:, None] >= grades  # [k, grade]
        return self.vectors[:-1].flatten(0, 1), (below[:, :, None] * weights).flatten(1)

    def state(self) -> dict[str, Tensor]:
        return {"vectors": self.vectors, "counts": self.counts}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.vectors.copy_(state["vectors"])
        self.counts.copy_(state["counts"])


def shares_above(asked: Tensor, scores: Tensor, weights: Tensor) -> Tensor:
    """The weight of ``scores`` [C] above each of ``asked`` [B], a share of all; [T, B].

    ``weights`` [T, C]; a row of them that is all 0 has shares 0.
    """
    ordered, order = scores.sort()
    sums = torch.nn.functional.pad(weights[:, order].cumsum(dim=1), (1, 0))
    total = sums[:, -1:]
    up_to = sums[:, torch.searchsorted(ordered, asked.contiguous(), right=True)]
    return ((total - up_to) / torch.where(total > 0, total, 1.0)).clamp(min=0.0)
