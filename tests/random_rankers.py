"""Random vectors and pairs, and the pairs as lists."""

import torch

from rankfold.models.ranker import Ranker
from rankfold.types import Dataset, Interactions, Model, Vocabulary, from_pairs


def random_case(seed: int, m: int = 17, n: int = 11) -> tuple[Dataset, Ranker]:
    """Random splits and random vectors; some queries have nothing in test."""
    rng = torch.Generator().manual_seed(seed)
    split = torch.randint(0, 9, (m, n), generator=rng)  # 0-2 train, 3 validation, 4 test, else none
    parts = []
    for values in ((0, 1, 2), (3,), (4,)):
        pairs = sum((split == value).long() for value in values).nonzero()
        parts.append(from_pairs(pairs[:, 0], pairs[:, 1], None, (m, n)))
    queries, candidates = Vocabulary.numbered(m), Vocabulary.numbered(n)
    data = Dataset("interactions", *parts, queries, candidates)
    tensors = {
        "queries": torch.randn(m, 4, generator=rng),
        "candidates": torch.randn(n, 4, generator=rng),
    }
    return data, Ranker(Model("popularity", {}, tensors), queries, candidates, data.seen("test"))


def row_of(part: object, query: int) -> list[int]:
    offsets, candidates = part.offsets, part.candidates  # type: ignore[attr-defined]
    return candidates[offsets[query] : offsets[query + 1]].tolist()


def pairs_of(part: Interactions) -> list[tuple[int, int]]:
    return list(zip(part.query_of_pair().tolist(), part.candidates.tolist(), strict=True))
