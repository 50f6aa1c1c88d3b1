"""Example queries of the test split: their results and the correct candidates."""

import json
from typing import Any

import torch
from torch import Tensor

from rankfold.models.ranker import Ranker
from rankfold.types import Dataset, Vocabulary

_N_QUERIES = 5
_K = 5
_MAX_WORDS = 60  # of a text


def examples_of(ranker: Ranker, data: Dataset) -> list[dict[str, Any]]:
    """The best candidates of a few queries, drawn at random; correct ones are marked."""
    truth = data.split("test")
    rows = truth.counts().nonzero().flatten()
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    rows = rows[order[:_N_QUERIES].sort().values]
    keys = data.queries.take(rows).to_list()
    ranking, texts = ranker.search(keys, k=_K), _texts_of(data, rows)
    correct = truth.select(rows)
    examples = []
    for place, key in enumerate(keys):
        true = correct.part(place, place + 1).candidates.long()
        wanted = dict(zip(data.candidates.take(true).to_list(), true.tolist(), strict=True))
        got = ranking.keys[place]
        labels = _labels(data.candidates, data.candidates.find(got))
        candidates = [
            {"candidate": one, "text": text, "score": float(score), "right": one in wanted}
            for one, text, score in zip(got, labels, ranking.scores[place], strict=False)
        ]
        missed = [one for one in wanted if one not in got][:_K]
        words = _labels(data.candidates, torch.tensor([wanted[one] for one in missed]).long())
        also = [{"candidate": o, "text": text} for o, text in zip(missed, words, strict=True)]
        example = {"query": key, "text": texts[place], "candidates": candidates, "missed": also}
        examples.append(example)
    return examples


def _labels(vocabulary: Vocabulary, rows: Tensor) -> list[str | None]:
    """The text of each row; None without one."""
    if vocabulary.texts is None or len(rows) == 0:
        return [None] * len(rows)
    return list(vocabulary.texts.gather(rows.numpy()).to_list())


def _texts_of(data: Dataset, rows: Tensor) -> list[str | None]:
    """The original texts; if only tokens were kept, the tokens."""
    if data.queries.texts is not None:
        return _labels(data.queries, rows)
    if data.tokenizer is None or data.query_texts is None:
        return [None] * len(rows)
    texts = data.query_texts.select(rows)
    numbers = json.loads(data.tokenizer)["model"]["vocab"]
    wanted = set(texts.tokens.tolist())
    words = {number: word for word, number in numbers.items() if number in wanted}
    parts = [part.tolist() for part in texts.tokens.split(texts.counts().tolist())]
    ends = [" ..." if len(part) > _MAX_WORDS else "" for part in parts]
    shown = [" ".join(words[token] for token in part[:_MAX_WORDS]) for part in parts]
    return [text.replace(" ##", "") + end for text, end in zip(shown, ends, strict=True)]
