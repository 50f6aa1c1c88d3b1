"""The two sides of a pool, as the losses read them."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Sides(NamedTuple):
    """The positives P and the negatives V- of each query, with its scores; all [B, C]."""

    positive: Tensor  # bool
    negative: Tensor  # bool
    safe: Tensor  # the scores; 0 where invalid, since invalid scores are never read
    weight: Tensor  # w of the positives, 0 elsewhere

    @property
    def counted(self) -> Tensor:
        """Which queries have a positive of positive weight; [B]."""
        return self.weight.sum(dim=1) > 0

    def over_positives(self, costs: Tensor) -> Tensor:
        """sum_{c in P_b} w_bc cost_bc / sum_{c in P_b} w_bc; [B], 0 where not ``counted``."""
        total = self.weight.sum(dim=1)
        return (self.weight * costs).sum(dim=1) / torch.where(total > 0, total, 1.0)

    def over_pairs(self, cost: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
        """``over_positives`` of a cost against the negatives; [B].

        ``cost(own [n, 1], pool [n, C], negative [n, C]) -> [n]`` gets the score of each positive
        and the scores of its query's pool: [n, C] instead of [B, C, C].
        """
        rows, columns = self.positive.nonzero(as_tuple=True)
        costs = cost(self.safe[rows, columns, None], self.safe[rows], self.negative[rows])
        return self.over_positives(torch.zeros_like(self.safe).index_put((rows, columns), costs))


def split(scores: Tensor, grades: Tensor, valid: Tensor, weights: Tensor | None) -> Sides:
    """The sides of a pool, from the arguments of a loss."""
    positive, safe = (grades > 0) & valid, torch.where(valid, scores, 0.0)
    weight = positive.to(scores.dtype) if weights is None else torch.where(positive, weights, 0.0)
    return Sides(positive, (grades <= 0) & valid, safe, weight)


def mean_over(some: Tensor, costs: Tensor) -> Tensor:
    """The mean cost of ``some`` columns [B, C] bool; [B], 0 for a row without any."""
    return (costs * some).sum(dim=1) / some.sum(dim=1).clamp(min=1)
