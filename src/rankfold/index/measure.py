"""How many of the best an index finds, measured against exact search."""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor

from rankfold.types import Index, Interactions, TopK

SAMPLE = 256  # queries to choose the effort of a search with, and as many others to measure it
DEPTHS = (1, 10, 100)  # of the recall that is told
ROUNDING = 1e-5  # of a score


def recalls(found: TopK, truth: TopK) -> Tensor:
    """How many of each query's results are as good as the last of its true ones [B, K]; [B].

    As a share of the true ones, of which there may be fewer than K (-1 pads). Of candidates with
    equal scores any is right, up to rounding.
    """
    k, wanted = truth.ids.shape[1], (truth.ids >= 0).sum(dim=1)
    last = truth.scores[:, -1:] - ROUNDING * truth.scores[:, -1:].abs()
    hits = (found.scores[:, :k] >= last) & (found.ids[:, :k] >= 0)
    return torch.where(wanted > 0, hits.sum(dim=1).double() / wanted, 1.0)


def lower_bound(values: Tensor) -> float:
    """The mean less two standard errors: chosen by it, new queries seldom do worse."""
    return float(values.mean() - 2 * values.std(correction=0) / sqrt(len(values)))


def measure(
    index: Index, exact: Index, queries: Tensor, exclude: Interactions | None = None
) -> dict[str, float]:
    """The mean recall at 1, 10 and 100 results."""
    truth = exact.search(queries, max(DEPTHS), exclude)
    found = {k: recalls(index.search(queries, k, exclude), first(truth, k)) for k in DEPTHS}
    return {str(k): round(float(values.mean()), 4) for k, values in found.items()}


def first(results: TopK, k: int) -> TopK:
    """The best k of them."""
    return TopK(results.ids[:, :k], results.scores[:, :k])


def halves(queries: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Two random parts of equal size, of ``SAMPLE`` at most; one choosing, one to measure with."""
    rng = torch.Generator().manual_seed(seed)
    size = min(len(queries) // 2, SAMPLE)
    order = torch.randperm(len(queries), generator=rng).to(queries.device)
    return queries[order[:size]], queries[order[size : 2 * size]]
