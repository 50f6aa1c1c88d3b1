"""A free vector for each query and each candidate: matrix factorisation."""

from __future__ import annotations

import torch
from torch import Tensor, nn

SPREAD = 0.1  # standard deviation of a coordinate at the start


class Tables(nn.Module):
    """Two tables of vectors.

    With ``sparse`` gradients a step costs as much as its batch, rather than the tables.
    """

    def __init__(
        self, sizes: tuple[int, int], width: int, rng: torch.Generator, *, sparse: bool = False
    ) -> None:
        super().__init__()
        self.queries, self.candidates = (table(size, width, rng, sparse=sparse) for size in sizes)

    def of_queries(self, rows: Tensor | None) -> Tensor:
        return look_up(self.queries, rows)

    def of_candidates(self, rows: Tensor | None) -> Tensor:
        return look_up(self.candidates, rows)


def look_up(table: nn.Embedding, rows: Tensor | None) -> Tensor:
    """Some rows of a table, or the table."""
    found: Tensor = table.weight if rows is None else table(rows)
    return found


def table(size: int, width: int, rng: torch.Generator, *, sparse: bool = False) -> nn.Embedding:
    """Random vectors, the same on every device."""
    return nn.Embedding(
        size, width, sparse=sparse, _weight=torch.randn(size, width, generator=rng) * SPREAD
    )
