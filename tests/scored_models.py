"""A model with random vectors, and data of which it knows every query and candidate."""

import torch

from rankfold.models.ranker import Ranker
from rankfold.types import Dataset, Interactions, Model, Vocabulary
from rankfold.types.data import from_pairs


def random_pairs(n_queries: int, n_candidates: int, seed: int = 0) -> Interactions:
    """About a quarter of all pairs, low candidates more often; each query has some."""
    rng = torch.Generator().manual_seed(seed)
    share = torch.linspace(0.6, 0.05, n_candidates)
    chosen = torch.rand(n_queries, n_candidates, generator=rng) < share
    chosen[:, 0] |= ~chosen.any(dim=1)
    rows, columns = chosen.nonzero(as_tuple=True)
    return from_pairs(rows, columns, None, (n_queries, n_candidates))


def model_of_scores(
    scale: float, n_queries: int = 40, n_candidates: int = 25, width: int = 4
) -> tuple[Dataset, Ranker]:
    """Data, and a model whose scores have about this standard deviation."""
    rng = torch.Generator().manual_seed(3)
    sides = (Vocabulary.numbered(n_queries), Vocabulary.numbered(n_candidates))
    train, test = (random_pairs(n_queries, n_candidates, seed) for seed in (0, 1))
    data = Dataset("interactions", train, None, test.without(train), *sides, fingerprint="f")
    queries = torch.randn(n_queries, width, generator=rng) * scale / width**0.5
    candidates = torch.randn(n_candidates, width, generator=rng)
    model = Model("softmax", {}, {"queries": queries, "candidates": candidates})
    return data, Ranker(model, *sides, train)
