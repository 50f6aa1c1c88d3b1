"""Planted topics, and small fits of SiameseXML on them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from rankfold.distributed.collectives import SingleProcess
from rankfold.index.exact import Exact
from rankfold.methods import METHODS
from rankfold.methods.text.siamesexml import mix
from rankfold.methods.text.siamesexml.config import SiameseConfig
from rankfold.methods.text.siamesexml.corpus import Corpus, build_corpus
from rankfold.types import Dataset, Model, Run, Side, Step, Texts, Vocabulary, from_pairs

NAMES = [name for name in METHODS if name.startswith("siamesexml")]
DOCUMENTS, LABELS, TOPICS, WORDS = 120, 12, 4, 40
WITHOUT_WORDS: dict[str, Any] = {"linear_weight": 0.0, "neighbour_weight": 0.0}
SMALL: dict[str, Any] = {
    **{"width": 16, "batch_size": 32, "pool": 8, "shortlist": 4, "random": 2},
    **WITHOUT_WORDS,
}
SHORT: dict[str, Any] = {"encoder_epochs": 2, "classifier_epochs": 2, "joint_epochs": 2}


def topics(seed: int = 0) -> Dataset:
    """A document has words of one topic; a label has one word of its topic.

    The last 20 documents are the test: only their words predict their labels.
    """
    rng = torch.Generator().manual_seed(seed)
    topic = torch.arange(DOCUMENTS) % TOPICS
    words = torch.randint(0, WORDS // TOPICS, (DOCUMENTS, 6), generator=rng) * TOPICS
    tokens = (words + topic[:, None]).int()
    documents = Texts(torch.arange(DOCUMENTS + 1) * 6, tokens.flatten())
    labels = Texts(torch.arange(LABELS + 1), torch.arange(LABELS).int())
    same = topic[:, None] == torch.arange(LABELS) % TOPICS
    is_test = torch.arange(DOCUMENTS)[:, None] >= DOCUMENTS - 20
    corpus = [(same & ~is_test).nonzero(), (same & is_test).nonzero()]
    train, test = (from_pairs(p[:, 0], p[:, 1], None, (DOCUMENTS, LABELS)) for p in corpus)
    names = Vocabulary.numbered(DOCUMENTS), Vocabulary.numbered(LABELS)
    return Dataset(
        "texts", train, None, test, *names, documents, labels, n_tokens=WORDS, fingerprint="topics"
    )


def run(seed: int = 0, resume: Any = None) -> Run:
    rng = torch.Generator().manual_seed(seed)
    return Run(rng, torch.device("cpu"), SingleProcess(), resume, build_index=Exact)


def steps(name: str, data: Dataset, given: Run, **settings: Any) -> list[Step]:
    return list(METHODS[name].fit(data, config_of(name, **settings), given))


def config_of(name: str, **settings: Any) -> Any:
    """A small configuration of the method."""
    return METHODS[name].config(**small(name, **settings))


def small(name: str, **settings: Any) -> dict[str, Any]:
    """``SMALL`` and ``settings``, without those that the method lacks."""
    has = {field.name for field in fields(METHODS[name].config)}
    return {key: value for key, value in {**SMALL, **settings}.items() if key in has}


def model_of(result: list[Step]) -> Model:
    assert result[-1].model is not None
    return result[-1].model


def encode_texts(model: Model, texts: Texts, side: Side) -> Tensor:
    encode = mix.open_model(model).texts
    assert encode is not None
    return encode(texts, side)


def best_candidates(model: Model, texts: Texts, k: int) -> Tensor:
    opened = METHODS[model.method].open(model)
    if opened.search_texts is not None:
        return opened.search_texts(texts, k, None).ids
    vectors = encode_texts(model, texts, "query")
    return Exact(model.tensors["candidates"]).search(vectors, k).ids


def corpus_of(data: Dataset) -> Corpus:
    return build_corpus(data, SiameseConfig(pairs_from=0), run())
