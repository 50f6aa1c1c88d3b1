"""A few queries of the test split, what they got and what they should have got."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor

from rankfold.models.ranker import Ranker
from rankfold.types import Dataset, Vocabulary

QUERIES = 5
K = 5
WORDS = 60  # of a text, at most


def examples_of(ranker: Ranker, data: Dataset, seed: int = 0) -> list[dict[str, Any]]:
    """The best candidates of some queries, drawn by ``seed``, with a mark for right ones."""
    truth = data.split("test")
    rows = truth.counts().nonzero().flatten()
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    rows = rows[order[:QUERIES].sort().values]
    keys = data.queries.take(rows).to_list()
    found, texts = ranker.search(keys, k=K), _texts_of(data, rows)
    right = truth.select(rows)
    examples = []
    for place, key in enumerate(keys):
        true = right.part(place, place + 1).candidates.long()
        wanted = dict(zip(data.candidates.take(true).to_list(), true.tolist(), strict=True))
        got = found.keys[place]
        shown = _shown(data.candidates, data.candidates.find(got))
        candidates = [
            {"candidate": one, "text": text, "score": float(score), "right": one in wanted}
            for one, text, score in zip(got, shown, found.scores[place], strict=False)
        ]
        missed = [one for one in wanted if one not in got][:K]
        words = _shown(data.candidates, torch.tensor([wanted[one] for one in missed]).long())
        examples.append(
            {
                "query": key,
                "text": texts[place],
                "candidates": candidates,
                "missed": [
                    {"candidate": one, "text": text}
                    for one, text in zip(missed, words, strict=True)
                ],
            }
        )
    return examples


def _shown(vocabulary: Vocabulary, rows: Tensor) -> list[str | None]:
    """The text beside each row's key, None where there is none."""
    if vocabulary.texts is None or len(rows) == 0:
        return [None] * len(rows)
    return list(vocabulary.texts.gather(rows.numpy()).to_list())


def _texts_of(data: Dataset, rows: Tensor) -> list[str | None]:
    """What was written; where only tokens were kept, these."""
    if data.queries.texts is not None:
        return _shown(data.queries, rows)
    if data.tokenizer is None or data.query_texts is None:
        return [None] * len(rows)
    texts = data.query_texts.select(rows)
    numbers = json.loads(data.tokenizer)["model"]["vocab"]
    wanted = set(texts.tokens.tolist())
    words = {number: word for word, number in numbers.items() if number in wanted}
    parts = texts.tokens.split(texts.counts().tolist())
    return [_written([words[token] for token in part.tolist()]) for part in parts]


def _written(words: list[str]) -> str:
    """Words, or pieces of these, as one text."""
    more = " ..." if len(words) > WORDS else ""
    return " ".join(words[:WORDS]).replace(" ##", "") + more
