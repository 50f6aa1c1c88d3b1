"""What an epoch consists of: shuffled pairs, shuffled queries with all that they chose, rows."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from rankfold.types import Batch, Interactions


class Batches(Protocol):
    """The batches of an epoch. Order is drawn once per epoch; no Python runs per row."""

    def __len__(self) -> int: ...

    def order(self, rng: torch.Generator) -> Tensor:
        """What comes when, for one epoch."""
        ...

    def take(self, order: Tensor, number: int) -> Batch | Rows | Tensor:
        """The batch at a place of that order."""
        ...


class Rows(NamedTuple):
    """Queries to learn from, each with all candidates that it chose."""

    queries: Tensor  # [B] int64
    positives: Interactions  # a row per query

    @property
    def weights(self) -> Tensor:
        """A query counts as its pairs do: a mean over queries is one over pairs."""
        rows = self.positives
        if rows.grades is None:
            return rows.counts()
        sums = rows.grades.new_zeros(rows.n_queries)
        return sums.index_add(0, rows.query_of_pair().long(), rows.grades)


class PairBatches:
    """Every pair once per epoch; with weights, as many pairs, drawn by them."""

    def __init__(
        self, rows: Interactions, batch_size: int, weights: Literal["none", "grade"]
    ) -> None:
        self.queries, self.candidates = rows.query_of_pair(), rows.candidates
        self.batch_size = batch_size
        drawn = weights == "grade" and rows.grades is not None
        self.summed = rows.grades.double().cumsum(0) if drawn and rows.grades is not None else None

    def __len__(self) -> int:
        return -(-len(self.candidates) // self.batch_size)

    def order(self, rng: torch.Generator) -> Tensor:
        count, device = len(self.candidates), rng.device
        if self.summed is None:
            return torch.randperm(count, generator=rng, device=device)
        marks = torch.rand(count, generator=rng, device=device, dtype=torch.float64)
        places = torch.searchsorted(self.summed, marks * self.summed[-1], right=True)
        return places.clamp_(max=count - 1)

    def take(self, order: Tensor, number: int) -> Batch:
        places = order[number * self.batch_size : (number + 1) * self.batch_size]
        return Batch(self.queries[places].long(), self.candidates[places].long())


class QueryBatches:
    """Every query that chose something, once per epoch."""

    def __init__(self, rows: Interactions, batch_size: int) -> None:
        self.rows, self.batch_size = rows, batch_size
        self.asking = rows.counts().nonzero().flatten()

    def __len__(self) -> int:
        return -(-len(self.asking) // self.batch_size)

    def order(self, rng: torch.Generator) -> Tensor:
        return self.asking[torch.randperm(len(self.asking), generator=rng, device=rng.device)]

    def take(self, order: Tensor, number: int) -> Rows:
        queries = order[number * self.batch_size : (number + 1) * self.batch_size]
        return Rows(queries, self.rows.select(queries))


class RowBatches:
    """Every graded row once per epoch; a last row that would be alone goes with those before."""

    def __init__(self, n_rows: int, batch_size: int) -> None:
        self.n_rows, self.batch_size = n_rows, batch_size

    def __len__(self) -> int:
        return max(1, -(-(self.n_rows - 1) // self.batch_size))

    def order(self, rng: torch.Generator) -> Tensor:
        return torch.randperm(self.n_rows, generator=rng, device=rng.device)

    def take(self, order: Tensor, number: int) -> Tensor:
        stop = None if number == len(self) - 1 else (number + 1) * self.batch_size
        return order[number * self.batch_size : stop]
