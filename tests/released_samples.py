"""Models of the released code, its module on the topics, and near scores by loops."""

from __future__ import annotations

import torch
from text_samples import run_of
from torch import Tensor

from rankfold.encoders.bag_encoder import BagEncoder
from rankfold.methods.text.siamesexml.config import ReleasedConfig
from rankfold.methods.text.siamesexml.corpus import Corpus, build_corpus
from rankfold.methods.text.siamesexml.released import modules, shortlists
from rankfold.types import Dataset, Interactions


def rng_of(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def module_of(data: Dataset, seed: int = 0) -> tuple[modules.ReleasedModule, Corpus]:
    corpus = build_corpus(data, ReleasedConfig(), run_of())
    tokens = torch.randn(len(corpus.idf), 8, generator=rng_of(seed))
    encoder = BagEncoder(tokens, residual=False, rng=rng_of())
    return modules.ReleasedModule(encoder, corpus.rows.n_candidates, rng_of(seed)), corpus


def dense(pairs: Interactions) -> Tensor:
    values = torch.ones(pairs.n_pairs) if pairs.grades is None else pairs.grades
    result = torch.zeros(pairs.n_queries, pairs.n_candidates)
    result[pairs.query_of_pair().long(), pairs.candidates.long()] = values
    return result


def near_by_loops(
    vector: Tensor, space: shortlists.NearSpace, chosen: Tensor, count: int
) -> list[float]:
    cosines = [float(vector @ other) for other in space.documents]
    nearest = sorted(range(len(cosines)), key=lambda d: -cosines[d])[:count]
    return [
        0.975 * float(vector @ space.candidates[y])
        + 0.025 * sum(cosines[d] for d in nearest if chosen[d, y])
        for y in range(chosen.shape[1])
    ]
