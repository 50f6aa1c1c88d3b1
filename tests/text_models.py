"""Documents of five topics, with labels that are named by their words."""

from dataclasses import replace
from typing import Any

import polars as pl
import pytest
import torch

import rankfold as rf
from rankfold.data.build.tokens import tokenise
from rankfold.models.ranker import Ranker
from rankfold.types import Dataset, Texts

BOTH = pytest.mark.parametrize("method", ["words", "overlap"])
TOPICS = ["red apples", "blue Äther", "green tea", "old maps", "cold noodles 麺"]


def documents(n: int = 40) -> pl.DataFrame:
    """Document i is about topic i % 5 and contains its word; tag 1 is the most frequent."""
    names = [f"tag {i % 5}" for i in range(n)]
    return pl.DataFrame(
        {
            "key": [f"d{i:02}" for i in range(n)],
            "text": [f"{TOPICS[i % 5]}, number {i % 3}" for i in range(n)],
            "labels": [[name, "tag 1"] if i % 4 == 0 else [name] for i, name in enumerate(names)],
        }
    )


LABELS = pl.DataFrame({"candidate": [f"tag {i}" for i in range(5)], "text": TOPICS})


def prepared(**options: Any) -> Dataset:
    how: dict[str, Any] = {"format": "texts", "candidate_texts": LABELS, "seed": 1, **options}
    return rf.prepare(documents(), **how)


@pytest.fixture(scope="module", name="data")
def text_data() -> Dataset:
    return prepared()


@pytest.fixture(name="ranker")
def words_ranker(data: Dataset) -> Ranker:
    return rf.fit("words", data)


def tokens(data: Dataset, *texts: str) -> Texts:
    assert data.tokenizer is not None
    return tokenise(data.tokenizer, texts)


def popular(data: Dataset) -> list[str]:
    counts = dict(zip(data.candidates.keys, data.seen("test").candidate_counts(), strict=True))
    return sorted(counts, key=lambda key: (-int(counts[key]), key))


def as_bags(texts: Texts | None) -> Texts:
    assert texts is not None
    return replace(texts, weights=torch.ones(len(texts.tokens)))


def chosen_by(ranker: Ranker, key: str) -> list[Any]:
    rows = ranker.queries.rows([key])
    return ranker.candidates.take(ranker.seen.select(rows).candidates).to_list()
