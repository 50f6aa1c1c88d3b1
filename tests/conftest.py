"""Settings of property tests, and methods for tests.

Property tests run few examples, without a deadline, so that the suite is fast on a busy machine.

Where ``CI`` is set the examples are always the same; elsewhere each run draws new ones.

Some methods are registered only for tests: ``sums`` has vectors of whole numbers, so folding in is
exact; ``neighbours`` has a custom search; ``slopes`` has candidates that are linear in their
features; ``words`` sums whole numbers over the tokens of a text; ``overlap`` counts the words that
two texts share.
"""

import gc
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch
from hypothesis import settings
from torch import Tensor

from rankfold.methods import METHODS
from rankfold.types import (
    Dataset,
    Features,
    Interactions,
    Method,
    Model,
    Opened,
    Run,
    Side,
    Step,
    Texts,
    TopK,
)

settings.register_profile(
    "rankfold", deadline=None, max_examples=40, derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("rankfold")
LONG = ("distributed", "golden", "serve", "tune", "cli")  # folders whose files take long


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first: where workers share the files, the last one must be short."""
    items.sort(key=lambda item: item.path.parent.name not in LONG)


def pytest_runtest_setup() -> None:
    """The global generators start afresh: what a test draws does not depend on those before it."""
    torch.manual_seed(0)
    random.seed(0)


def pytest_collection_finish() -> None:
    """A search for garbage does not read the modules again: a tenth of a second each."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def no_fsync() -> Iterator[None]:
    """Skip fsync: only a power cut would show the difference."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _handle: None)
        yield


@dataclass(frozen=True, slots=True)
class NoConfig:
    """No settings."""


def dense(rows: Interactions) -> Tensor:
    matrix = torch.zeros(rows.n_queries, rows.n_candidates)
    matrix[rows.query_of_pair().long(), rows.candidates.long()] = 1.0
    return matrix


def fit_sums(data: Dataset, _config: NoConfig, _run: Run) -> Iterator[Step]:
    """Random candidates; a query is the sum of those it chose."""
    rng = torch.Generator().manual_seed(7)
    candidates = torch.randint(-9, 10, (len(data.candidates), 4), generator=rng).float()
    queries = dense(data.split("train")) @ candidates
    model = Model("sums", {}, {"queries": queries, "candidates": candidates})
    yield Step(1, 0.0, model, dict, final=True)


def open_sums(model: Model) -> Opened:
    return Opened(histories=lambda rows: dense(rows) @ model.tensors["candidates"])


def fit_neighbours(data: Dataset, _config: NoConfig, _run: Run) -> Iterator[Step]:
    """The similarity of two candidates is the number of queries that chose both."""
    train = data.split("train")
    matrix = dense(train)
    kept = {"offsets": train.offsets, "candidates_of_queries": train.candidates}
    model = Model("neighbours", {}, {"likeness": matrix.T @ matrix, **kept})
    yield Step(1, 0.0, model, dict, final=True)


def open_neighbours(model: Model) -> Opened:
    return Opened(search_histories=partial(search_neighbours, model))


def search_neighbours(
    model: Model, histories: Interactions, k: int, exclude: Interactions | None
) -> TopK:
    scores = dense(histories) @ model.tensors["likeness"]
    if exclude is not None:
        scores[dense(exclude) > 0] = -torch.inf
    scores, ids = torch.sort(scores, dim=1, descending=True, stable=True)
    ids[scores == -torch.inf] = -1
    return TopK(ids[:, :k], scores[:, :k])


def fit_slopes(data: Dataset, _config: NoConfig, _run: Run) -> Iterator[Step]:
    """A candidate is its features times random slopes; a query sums its candidates."""
    features = data.candidate_features
    if features is None:
        yield from fit_sums(data, _config, _run)
        return
    rng = torch.Generator().manual_seed(7)
    width = features.numbers.shape[1] + features.categories.shape[1]
    slopes = {"slopes": torch.randint(-9, 10, (width, 4), generator=rng).float()}
    columns = {"numbers": features.columns.numbers, "levels": dict(features.columns.levels)}
    bare = Model("slopes", {}, slopes, {"candidate_columns": columns})
    candidates = encode_slopes(bare, features)
    queries = dense(data.split("train")) @ candidates
    tensors = {**slopes, "queries": queries, "candidates": candidates}
    yield Step(1, 0.0, Model("slopes", {}, tensors, bare.notes), dict, final=True)


def open_slopes(model: Model) -> Opened:
    features = partial(encode_slopes, model) if "slopes" in model.tensors else None
    return replace(open_sums(model), features=features)


def encode_slopes(model: Model, features: Features, _side: Side = "candidate") -> Tensor:
    known = torch.cat([features.numbers.nan_to_num(0.0), features.categories.float()], dim=1)
    return known @ model.tensors["slopes"]


def fit_words(data: Dataset, _config: NoConfig, _run: Run) -> Iterator[Step]:
    """Random vectors of tokens; a text is the sum of its tokens, on either side."""
    assert data.candidate_texts is not None
    rng = torch.Generator().manual_seed(7)
    table = {"table": torch.randint(-9, 10, (data.n_tokens, 8), generator=rng).float()}
    candidates = encode_words(Model("words", {}, table), data.candidate_texts, "candidate")
    model = Model("words", {}, {**table, "candidates": candidates})
    yield Step(1, 0.0, model, dict, final=True)


def open_words(model: Model) -> Opened:
    return Opened(texts=partial(encode_words, model))


def encode_words(model: Model, texts: Texts, _side: Side) -> Tensor:
    vectors = model.tensors["table"][texts.tokens.long()]
    if texts.weights is not None:
        vectors = vectors * texts.weights[:, None]
    rows = torch.repeat_interleave(texts.counts())
    return vectors.new_zeros(len(texts), vectors.shape[1]).index_add(0, rows, vectors)


def fit_overlap(data: Dataset, _config: NoConfig, _run: Run) -> Iterator[Step]:
    """A candidate is the words of its text."""
    assert data.candidate_texts is not None
    model = Model("overlap", {}, {"words": mark_tokens(data.candidate_texts, data.n_tokens)})
    yield Step(1, 0.0, model, dict, final=True)


def mark_tokens(texts: Texts, n_tokens: int) -> Tensor:
    """Which tokens each text has; [n, n_tokens]."""
    matrix = torch.zeros(len(texts), n_tokens)
    matrix[torch.repeat_interleave(texts.counts()), texts.tokens.long()] = 1.0
    return matrix


def open_overlap(model: Model) -> Opened:
    return Opened(search_texts=partial(search_overlap, model))


def search_overlap(model: Model, texts: Texts, k: int, exclude: Interactions | None) -> TopK:
    words = model.tensors["words"]
    scores = mark_tokens(texts, words.shape[1]) @ words.T
    if exclude is not None:
        scores[dense(exclude) > 0] = -torch.inf
    scores, ids = torch.sort(scores, dim=1, descending=True, stable=True)
    ids[scores == -torch.inf] = -1
    return TopK(ids[:, :k], scores[:, :k])


SUMS = Method("sums", NoConfig, "interactions", fit_sums, open_sums, answers=("histories",))
SLOPES = Method(
    "slopes",
    NoConfig,
    "interactions",
    fit_slopes,
    open_slopes,
    answers=("histories", "features"),
)
NEIGHBOURS = Method(
    "own",
    NoConfig,
    "interactions",
    fit_neighbours,
    open_neighbours,
    answers=("histories",),
    own_search=True,
)
WORDS = Method("words", NoConfig, "texts", fit_words, open_words, answers=("texts",))
OVERLAP = Method(
    "overlap", NoConfig, "texts", fit_overlap, open_overlap, answers=("texts",), own_search=True
)


@pytest.fixture
def extra_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "sums", SUMS)
    monkeypatch.setitem(METHODS, "neighbours", NEIGHBOURS)
    monkeypatch.setitem(METHODS, "slopes", SLOPES)
    monkeypatch.setitem(METHODS, "words", WORDS)
    monkeypatch.setitem(METHODS, "overlap", OVERLAP)
