"""The recall of an index, measured against exact search."""

from math import sqrt

import torch
from torch import Tensor

from rankfold.types import Index, Interactions, TopK

SAMPLE_QUERIES = 256  # queries to tune the effort of a search with, and as many to measure recall
RECALL_DEPTHS = (1, 10, 100)  # results at which recall is reported
ROUNDING = 1e-5  # relative, of a score


def recalls(results: TopK, truth: TopK) -> Tensor:
    """The share of the true results [B, K] that each query got; [B].

    A result counts if it scores as high as the last true one, up to rounding: any of several
    candidates with equal scores is right. There may be fewer than K true results (-1 pads).
    """
    k, wanted = truth.ids.shape[1], (truth.ids >= 0).sum(dim=1)
    last = truth.scores[:, -1:] - ROUNDING * truth.scores[:, -1:].abs()
    hits = (results.scores[:, :k] >= last) & (results.ids[:, :k] >= 0)
    return torch.where(wanted > 0, hits.sum(dim=1).double() / wanted, 1.0)


def lower_bound(values: Tensor) -> float:
    """The mean minus two standard errors; new queries rarely have a lower mean."""
    return float(values.mean() - 2 * values.std(correction=0) / sqrt(len(values)))


def measure(
    index: Index, exact: Index, queries: Tensor, exclude: Interactions | None = None
) -> dict[str, float]:
    """The mean recall at 1, 10 and 100 results."""
    truth = exact.search(queries, max(RECALL_DEPTHS), exclude)
    by_depth = {
        k: recalls(index.search(queries, k, exclude), truth.first(k)) for k in RECALL_DEPTHS
    }
    return {str(k): round(float(values.mean()), 4) for k, values in by_depth.items()}


def split_halves(queries: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Two random parts of equal size, at most ``SAMPLE_QUERIES`` each: to tune and to measure."""
    rng = torch.Generator().manual_seed(seed)
    size = min(len(queries) // 2, SAMPLE_QUERIES)
    order = torch.randperm(len(queries), generator=rng).to(queries.device)
    return queries[order[:size]], queries[order[size : 2 * size]]
