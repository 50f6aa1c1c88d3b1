"""The fitted model and the data that a diagnosis looks at."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.data.build.align import same_keys
from rankfold.errors import UserError
from rankfold.kernels.softmax import wide
from rankfold.models.grader import Grader
from rankfold.models.ranker import Ranker
from rankfold.models.search import has_own_search
from rankfold.types import Dataset, Interactions

BLOCK_SCORES = 2**22  # scores in memory at a time


class DiagnosedData(NamedTuple):
    """Prepared data."""

    data: Dataset
    seed: int

    def queries(self, size: int, pairs: Interactions) -> Tensor:
        """At most ``size`` queries with a pair, drawn by the seed, ascending."""
        return drawn_rows(pairs, size, self.seed)


class DiagnosedModel(NamedTuple):
    """A fitted model and its data."""

    data: Dataset
    seed: int
    model: Ranker | Grader

    @property
    def ranker(self) -> Ranker:
        assert isinstance(self.model, Ranker)
        return self.model

    def sampled(self, size: int) -> "ScoredQueries":
        """The vectors of a sample of queries and of all candidates, and the training pairs."""
        ranker, pairs = self.ranker, self.data.split("train")
        tensors = ranker.model.tensors
        if has_own_search(ranker.model) or not {"queries", "candidates"} <= tensors.keys():
            raise UserError(
                f"scores of {ranker.model.method} are not inner products of vectors",
                hint="diagnose a model with vectors, such as rg2, softmax or bir",
            )
        both = ((ranker.queries, self.data.queries), (ranker.candidates, self.data.candidates))
        if not all(same_keys(ours, theirs) for ours, theirs in both):
            raise UserError(
                "the model has other queries or candidates than the data",
                hint="give the data that the model was fitted on",
            )
        rows = drawn_rows(pairs, size, self.seed)
        queries = wide(tensors["queries"][rows]).cpu()
        candidates = wide(tensors["candidates"]).cpu()
        return ScoredQueries(rows, queries, candidates, pairs.select(rows), pairs)


class ScoredQueries(NamedTuple):
    """A sample of queries whose scores with all candidates are inner products."""

    rows: Tensor  # of the data, [B]
    queries: Tensor  # [B, D]
    candidates: Tensor  # [N, D]
    positives: Interactions  # of these queries
    pairs: Interactions  # of all queries

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Queries and their scores [b, N] float64, a bounded number of scores at a time."""
        step = max(1, BLOCK_SCORES // max(1, len(self.candidates)))
        for start in range(0, len(self.queries), step):
            some = slice(start, start + step)
            yield some, (self.queries[some] @ self.candidates.T).double()

    def targets(self, some: slice) -> Tensor:
        """The positives of some queries, each row divided by its number; [b, N]."""
        stop = min(some.stop, len(self.rows))
        own = self.positives.part(some.start, stop)
        shares = torch.zeros(own.n_queries, len(self.candidates), dtype=torch.float64)
        shares[own.query_of_pair().long(), own.candidates.long()] = 1.0
        return shares / shares.sum(dim=1, keepdim=True).clamp(min=1)

    def popularity(self) -> Tensor:
        """The share of the training pairs that each candidate has; [N].

        A candidate without pairs counts as one with one pair.
        """
        counts = self.pairs.candidate_counts().double().clamp(min=1)
        return counts / counts.sum()


def drawn_rows(pairs: Interactions, size: int, seed: int) -> Tensor:
    """At most ``size`` rows with a pair, drawn by the seed, ascending."""
    rows = (pairs.counts() > 0).nonzero().flatten()
    if len(rows) == 0:
        raise UserError("no query has a pair", hint="prepare data with training pairs")
    rng = torch.Generator().manual_seed(seed)
    return rows[torch.randperm(len(rows), generator=rng)[:size]].sort().values
