"""The share of pairs of rows with different grades that the scores put in the right order."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Pairs(NamedTuple):
    """Pairs of a row of one grade and a row of another, counted by their grades.

    Leading dimensions are other sets of rows.
    """

    right: Tensor  # [..., G, G] float64: grade b scores above grade a; equal scores count half
    total: Tensor  # [..., G, G] float64


def count_pairs(passed: Tensor) -> Pairs:
    """The pairs in ``passed`` [G, ..., J + 1], how many rows of each grade pass each cut.

    Above a row of grade a are the rows of grade b that pass its score, and half of those with an
    equal score. O(J G^2), since the scores are sorted.
    """
    points = passed.double()
    own = points.diff(dim=-1)
    above = torch.add(points[..., :-1], own, alpha=0.5)
    right = own.movedim(0, -2) @ above.movedim(0, -1)
    n = points[..., -1].movedim(0, -1)
    return Pairs(right, n[..., :, None] * n[..., None, :])


def auc(pairs: Pairs) -> Tensor:
    """The share of pairs of a positive and a negative in which the positive scores higher.

    Equal scores count half. Returns [G - 1, ...], one per threshold, NaN if a side is empty.
    """
    return torch.stack(
        [
            _sum(pairs.right[..., : k + 1, k + 1 :]) / _sum(pairs.total[..., : k + 1, k + 1 :])
            for k in range(pairs.right.shape[-1] - 1)
        ]
    )


def order(pairs: Pairs) -> Tensor:
    """The share of pairs of rows with different grades in which the higher grade scores higher.

    Equal scores count half; with two grades it is ``auc``. Returns [1, ...], NaN if all rows
    have the same grade.
    """
    return (_sum(pairs.right.triu(1)) / _sum(pairs.total.triu(1)))[None]


def _sum(counts: Tensor) -> Tensor:
    return counts.sum(dim=(-2, -1))
