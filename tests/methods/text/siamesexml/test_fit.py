"""SiameseXML: its modules against brute force, planted topics, resumed runs."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from rankings import assert_same_ranking, sorted_by
from torch import Tensor, nn
from torch.nn.functional import dropout

import rankfold as rf
from rankfold.data import folder
from rankfold.distributed.collectives import SingleProcess
from rankfold.encoders.bag_encoder import TEXT_ENCODERS, BagEncoder, unit
from rankfold.encoders.bags import weigh, with_pairs
from rankfold.errors import UserError
from rankfold.index.exact import Exact
from rankfold.methods import METHODS
from rankfold.methods.text.siamesexml import fit as recipe
from rankfold.methods.text.siamesexml import mining, mix, modules
from rankfold.methods.text.siamesexml.config import SiameseConfig
from rankfold.methods.text.siamesexml.corpus import Corpus, build_corpus
from rankfold.models.ranker import Ranker
from rankfold.models.search import best
from rankfold.training import checkpoint, loop
from rankfold.training.history import History
from rankfold.types import (
    Dataset,
    Interactions,
    Model,
    Run,
    Side,
    Step,
    Texts,
    TopK,
    Vocabulary,
    from_pairs,
)

NAMES = [name for name in METHODS if name.startswith("siamesexml")]
DOCUMENTS, LABELS, TOPICS, WORDS = 120, 12, 4, 40
SMALL: dict[str, Any] = {"width": 16, "batch_size": 32, "pool": 8, "shortlist": 4, "random": 2}
SHORT: dict[str, Any] = {"encoder_epochs": 2, "classifier_epochs": 2, "joint_epochs": 2}


def topics(seed: int = 0) -> Dataset:
    """Documents of words of one topic each; a label is of a topic, too, and has one of its words.

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
    """A small one."""
    return METHODS[name].config(**small(name, **settings))


def small(name: str, **settings: Any) -> dict[str, Any]:
    """The settings of the method."""
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


@pytest.mark.parametrize("name", NAMES)
def test_planted_topics_are_learned(name: str) -> None:
    data = topics()
    assert data.query_texts is not None
    many = {"encoder_epochs": 40, "classifier_epochs": 10, "joint_epochs": 10, "lr": 0.02}
    model = model_of(steps(name, data, run(), **many))
    rows = torch.arange(DOCUMENTS - 20, DOCUMENTS)
    ids = best_candidates(model, data.query_texts.select(rows), LABELS // TOPICS)
    assert float((ids % TOPICS == (rows % TOPICS)[:, None]).double().mean()) > 0.95


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_determines_the_model(name: str) -> None:
    first, second, other = (
        model_of(steps(name, topics(), run(seed), **SHORT)).tensors for seed in (3, 3, 4)
    )
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize("name", NAMES)
def test_resuming_after_any_step_ends_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every module, at the end of an epoch and inside one, to the bit."""
    monkeypatch.setattr(loop, "PAUSE_SECONDS", -1.0)  # a step after every batch
    states: list[dict[str, Tensor]] = []
    final = None
    for step in METHODS[name].fit(topics(), config_of(name, **SHORT), run(1)):
        if not step.final:
            states.append({key: value.clone() for key, value in step.state().items()})
        final = step.model
    assert final is not None
    assert len({int(state["stage"]) for state in states}) == 3
    for state in states[:: max(1, len(states) // 12)]:
        again = model_of(steps(name, topics(), run(1, state), **SHORT))
        assert all(torch.equal(again.tensors[key], final.tensors[key]) for key in final.tensors)


@pytest.mark.parametrize("name", NAMES)
def test_step_numbers_continue_and_the_last_has_the_model(name: str) -> None:
    result = [step for step in steps(name, topics(), run(), **SHORT) if step.whole]
    members = METHODS[name].config().members
    assert [step.number for step in result] == list(range(1, 6 * members + 2))
    assert [step.final for step in result] == [False] * (6 * members) + [True]
    assert all(step.model is None for step in result[:-1])
    stages = [str(step.stage) for step in result[:6:2]]
    assert [stage.split()[-1] for stage in stages] == ["encoder", "classifiers", "joint"]
    assert all(stage.startswith("member 1 of 3, ") for stage in stages) == (members == 3)
    assert result[-1].stage == "the mix"
    assert ("shortlists" in str(result[1].stage)) == (
        name in ("siamesexml-paper", "siamesexml-released")
    )
    shares = [step.share for step in result[:-1]]
    assert shares == sorted(shares)  # type: ignore[type-var]
    assert shares[-1] == pytest.approx(1.0)


def test_a_new_candidate_has_the_vector_of_its_text() -> None:
    data = topics()
    settings = {"classifier_share": 0.5, "centroid_weight": 0.3, "popularity_weight": 0.1}
    model = model_of(steps("siamesexml", data, run(), **SHORT, **settings))
    assert data.candidate_texts is not None
    new = encode_texts(model, data.candidate_texts, "candidate")
    vectors = encode_texts(model, data.candidate_texts, "query")
    torch.testing.assert_close(new[:, :-1], vectors[:, :-1] * 1.3)
    assert set(vectors[:, -1].tolist()) == {0.5}
    assert set(new[:, -1].tolist()) == {0.0}  # it was never chosen


def test_the_mix_matches_the_formula() -> None:
    done = {f"0.{key}": torch.randn(5, 3) for key in ("refined", "texts", "centroids")}
    done |= {f"1.{key}": torch.randn(5, 3) for key in ("refined", "texts", "centroids")}
    counts = torch.tensor([0, 1, 2, 40, 5])
    result = mix.mixture(done, mix.Mix(0.7, 0.2, 0.1), 2, counts)
    for number in (0, 1):
        corpus = [done[f"{number}.{key}"] for key in ("refined", "texts", "centroids")]
        expected = (0.7 * corpus[0] + 0.3 * corpus[1] + 0.2 * corpus[2]) / 2
        torch.testing.assert_close(result[:, number * 3 : number * 3 + 3], expected)
    assert result[:, 6].tolist() == pytest.approx([0.2 * math.log(1 + n) for n in counts.tolist()])
    assert torch.equal(mix.mixture(done, mix.Mix(0.7, 0.2, 0.0), 2, counts), result[:, :6])


def test_popularity_is_one_more_column_and_changes_nothing_else() -> None:
    data = topics()
    assert data.query_texts is not None
    given = {**SHORT, "classifier_share": 0.5, "centroid_weight": 0.3}
    without, by_it = (
        model_of(steps("siamesexml", data, run(), **given, popularity_weight=weight))
        for weight in (0.0, 0.1)
    )
    for key, tensor in without.tensors.items():
        result = by_it.tensors[key]
        assert torch.equal(tensor, result[:, :-1] if key == "candidates" else result)
    plain, more = (encode_texts(m, data.query_texts, "query") for m in (without, by_it))
    counts = data.split("train").candidate_counts()
    scores = plain @ without.tensors["candidates"].T + 0.1 * torch.log1p(counts)
    torch.testing.assert_close(more @ by_it.tensors["candidates"].T, scores)


def test_an_old_model_without_popularity_still_answers() -> None:
    data = topics()
    assert data.query_texts is not None
    model = model_of(steps("siamesexml", data, run(), **SHORT, popularity_weight=0.0))
    config = {key: value for key, value in model.config.items() if key != "popularity_weight"}
    vectors = encode_texts(replace(model, config=config), data.query_texts, "query")
    assert torch.equal(vectors, encode_texts(model, data.query_texts, "query"))
    assert vectors.shape[1] == model.tensors["candidates"].shape[1]


def test_an_old_model_without_encoder_names_still_answers() -> None:
    data = topics()
    assert data.query_texts is not None
    for encoder in ("plain", "residual"):
        model = model_of(steps("siamesexml", data, run(), **SHORT, encoder=encoder))
        config = {key: value for key, value in model.config.items() if key != "encoder"}
        older = replace(model, config={**config, "residual": encoder == "residual"})
        result = encode_texts(older, data.query_texts, "query")
        assert torch.equal(result, encode_texts(model, data.query_texts, "query"))


class Widest(nn.Module):
    """A custom encoder: the maximum of the token vectors, and a layer."""

    def __init__(self, start: Tensor, rng: torch.Generator) -> None:
        super().__init__()
        width = start.shape[1]
        self.table = nn.Embedding(*start.shape, _weight=start.clone())
        self.layer = nn.Linear(width, width)
        with torch.no_grad():
            self.layer.weight.copy_(
                torch.eye(width) + 0.1 * torch.randn(width, width, generator=rng)
            )
        self.register_buffer("calls", torch.zeros(1, dtype=torch.int64))

    def forward(self, bags: Texts) -> Tensor:
        assert bags.weights is not None
        vectors = self.table(bags.tokens.long()) * bags.weights[:, None]
        owners = torch.repeat_interleave(bags.counts())
        sums = vectors.new_zeros(len(bags), vectors.shape[1]).index_add(0, owners, vectors)
        return unit(self.layer(sums).tanh())


@pytest.fixture
def widest(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(TEXT_ENCODERS, "widest", Widest)
    return "widest"


@pytest.mark.parametrize("name", [name for name in NAMES if name != "siamesexml-released"])
def test_a_custom_encoder_is_trained_saved_and_queried(
    name: str, widest: str, tmp_path: Path
) -> None:
    data = topics()
    assert data.query_texts is not None
    many = {"encoder_epochs": 30, "classifier_epochs": 5, "joint_epochs": 10, "lr": 0.01}
    rf.fit(name, data, out=tmp_path / "model", **{**SMALL, **many, "encoder": widest})
    ranker = rf.load(tmp_path / "model")
    assert isinstance(ranker, Ranker)
    assert "0.layer.weight" in ranker.model.tensors
    rows = torch.arange(DOCUMENTS - 20, DOCUMENTS)
    ids = best_candidates(ranker.model, data.query_texts.select(rows), LABELS // TOPICS)
    assert float((ids % TOPICS == (rows % TOPICS)[:, None]).double().mean()) > 0.95


class FirstWord(Widest):
    """An encoder that depends on the order: a text is its first word."""

    def forward(self, texts: Texts) -> Tensor:
        assert bool((texts.counts() > 0).all())
        return unit(self.layer(self.table(texts.tokens[texts.offsets[:-1]].long())))


def test_a_custom_encoder_reads_tokens_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = topics()
    assert data.query_texts is not None
    monkeypatch.setitem(TEXT_ENCODERS, "first", FirstWord)
    model = model_of(steps("siamesexml", data, run(), **SHORT, encoder="first", pairs_from=0))
    orders = ([5, 2, 3], [5, 3, 2, 2], [2, 5, 3], [2, 2])
    tokens = torch.tensor([token for order in orders for token in order], dtype=torch.int32)
    texts = Texts(torch.tensor([0, *map(len, orders)]).cumsum(0), tokens)
    result = encode_texts(model, texts, "query")
    torch.testing.assert_close(result[0], result[1])
    torch.testing.assert_close(result[2], result[3])
    assert not torch.equal(result[0], result[2])


class Odd(Widest):
    """A frozen table, a layer drawn by torch, and dropout; it records when it is in eval mode."""

    def __init__(self, start: Tensor, rng: torch.Generator) -> None:
        super().__init__(start, rng)
        self.table.requires_grad_(requires_grad=False)
        self.second = nn.Linear(start.shape[1], start.shape[1])
        self.register_buffer("large", torch.full((1,), 1e6))
        start /= 2  # the encoder owns it
        self.seen: set[tuple[bool, bool]] = set()

    def forward(self, bags: Texts) -> Tensor:
        self.seen.add((self.training, torch.is_grad_enabled()))
        result = super().forward(bags)
        return unit(result + 0.1 * dropout(self.second(result), 0.2, self.training))


def test_a_custom_encoder_keeps_its_frozen_table_and_its_draws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = topics()
    assert data.query_texts is not None
    made: list[Odd] = []

    def odd(start: Tensor, rng: torch.Generator) -> Odd:
        made.append(Odd(start, rng))
        return made[-1]

    monkeypatch.setitem(TEXT_ENCODERS, "odd", odd)
    state = torch.get_rng_state()
    first = recipe.start_module(corpus_of(data), config_of("siamesexml", encoder="odd"), run(), 0)
    second = recipe.start_module(corpus_of(data), config_of("siamesexml", encoder="odd"), run(), 0)
    assert torch.equal(torch.get_rng_state(), state)
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    start = first.encoder.state_dict()["table.weight"].clone()

    settings = {**SHORT, "encoder": "odd", "classifier_batch_size": 16, "pairs_from": 0}
    model = model_of(steps("siamesexml-paper", data, run(), **settings))
    assert torch.equal(model.tensors["0.table.weight"], start)  # it was frozen
    assert float(model.tensors["0.large"]) == 1e6
    assert made[2].seen == {(True, True), (True, False), (False, False)}
    before = torch.get_rng_state()
    encode_texts(model, data.query_texts, "query")
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(5)  # other draws do not matter
    again = model_of(steps("siamesexml-paper", data, run(), **settings))
    assert all(torch.equal(again.tensors[key], model.tensors[key]) for key in model.tensors)


@pytest.mark.parametrize(
    ("name", "message"),
    [("texts", "the reserved name 'texts'"), ("noise", "'noise' that is not saved")],
)
def test_an_encoder_that_cannot_be_saved_is_refused_before_the_fit(
    name: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bad(start: Tensor, rng: torch.Generator) -> nn.Module:
        encoder = Widest(start, rng)
        encoder.register_buffer(name, torch.zeros(1), persistent=name != "noise")
        return encoder

    monkeypatch.setitem(TEXT_ENCODERS, "bad", bad)
    with pytest.raises(UserError, match=message):
        steps("siamesexml", topics(), run(), encoder="bad")


def test_a_missing_encoder_is_named(
    widest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = topics()
    rf.fit("siamesexml", data, out=tmp_path / "model", **{**SMALL, **SHORT, "encoder": widest})
    monkeypatch.delitem(TEXT_ENCODERS, widest)
    ranker = rf.load(tmp_path / "model")
    assert isinstance(ranker, Ranker)
    with pytest.raises(UserError, match="`encoder` must be one of plain, residual, got 'widest'"):
        ranker.search([0])


@pytest.mark.parametrize("stage", ["encoder", "classifiers", "joint"])
def test_a_stage_trains_only_its_part(stage: modules.StageName) -> None:
    """The matrix R of the paper's encoder is also trained in module III."""
    config = config_of("siamesexml-paper", classifier_batch_size=16)
    corpus = corpus_of(topics())
    module = recipe.start_module(corpus, config, run(), 0)
    before = {key: value.clone() for key, value in module.state_dict().items()}
    task = modules.task_of(module, modules.Stage(stage, 1), corpus, config, Exact)
    list(loop.train(task, modules.training(modules.Stage(stage, 1), config), run()))
    moved = {
        key for key, value in module.state_dict().items() if not torch.equal(value, before[key])
    }
    expected = {
        "encoder": {"encoder.tokens.weight", "encoder.mixing"},
        "classifiers": {"refinements.weight", "encoder.mixing"},
        "joint": {"refinements.weight", "encoder.tokens.weight", "encoder.mixing"},
    }
    assert moved == expected[stage]


def test_classifiers_and_their_optimiser_state_take_at_most_three_times_float16() -> None:
    """Weights and their optimiser state, after real steps."""
    corpus, width = corpus_of(topics()), 128
    config = config_of("siamesexml", width=width)
    module = recipe.start_module(corpus, config, run(), 0)
    stage = modules.Stage("classifiers", 1)
    task = modules.task_of(module, stage, corpus, config, Exact)
    *_, last = loop.train(task, modules.training(stage, config), run())
    kept = [tensor for tensor in last.state().values() if tensor.shape[:1] == (LABELS,)]
    assert any(tensor.shape == (LABELS, width) for tensor in kept)
    assert sum(tensor.nbytes for tensor in kept) <= 3 * 2 * LABELS * width
    assert bool(module.refinements.weight.any())


def test_float16_refinements_learn_as_float32_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    data = topics()
    halves = model_of(steps("siamesexml", data, run(), **SHORT)).tensors["candidates"]
    monkeypatch.setattr(torch, "float16", torch.float32)  # where the table is made
    singles = model_of(steps("siamesexml", data, run(), **SHORT)).tensors["candidates"]
    assert not torch.equal(halves, singles)
    torch.testing.assert_close(halves, singles, atol=2e-3, rtol=0)


@pytest.mark.parametrize("index", ["exact", "auto"])
def test_a_saved_model_ranks_by_the_formula(index: str, tmp_path: Path) -> None:
    """Without seen pairs and a document's own label."""
    data = topics()
    own = from_pairs(torch.arange(LABELS), torch.arange(LABELS).flip(0), None, (DOCUMENTS, LABELS))
    data = replace(data, excluded=own)
    given = {**SMALL, **SHORT, "popularity_weight": 0.3}
    rf.fit("siamesexml", data, out=tmp_path / "model", **given)
    ranker = rf.load(tmp_path / "model", index=index)
    assert isinstance(ranker, Ranker)
    tensors = ranker.model.tensors
    assert data.query_texts is not None
    encoder = BagEncoder(tensors["0.tokens.weight"].float(), residual=False, rng=torch.Generator())
    bags = with_pairs(data.query_texts, tensors["pairs"], WORDS)
    vectors = encoder(weigh(bags, tensors["rarity"]))
    counts = data.split("train").candidate_counts()
    scores = vectors @ tensors["candidates"][:, :16].T + 0.3 * torch.log1p(counts)
    for hidden in (data.split("train"), own):
        scores[hidden.query_of_pair().long(), hidden.candidates.long()] = -torch.inf
    rows = torch.arange(DOCUMENTS)
    result = best(ranker, "queries", rows, LABELS)
    expected = scores.sort(dim=1, descending=True).values
    torch.testing.assert_close(result.scores, expected)
    left = result.ids.clamp(min=0)
    torch.testing.assert_close(scores.gather(1, left).where(result.ids >= 0, -torch.inf), expected)


class First:
    """A judge of the first 30 documents, whose best labels are those of their topic."""

    queries, depth = torch.arange(30), 3

    def hidden(self, queries: Tensor) -> Interactions:
        """One hidden label per document, often the best one."""
        return from_pairs(
            torch.arange(len(queries)), queries % LABELS, None, (len(queries), LABELS)
        )

    def values(self, queries: Tensor, ids: Tensor) -> Tensor:
        wanted = (ids >= 0) & (ids % TOPICS == (queries % TOPICS)[:, None])
        return (wanted / torch.arange(1, 4)).sum(dim=1)


@pytest.mark.parametrize(
    ("memory_budget", "block_bytes"), [(1, 2**23), (2**30, 8 * LABELS), (2**30, 2**23)]
)
@pytest.mark.parametrize(
    "mixes",
    [
        [mix.Mix(0.7, 0.2, 0.0), mix.Mix(0.1, 0.9, 1.0), mix.Mix(1.0, 0.0, 0.3)],
        [mix.Mix(0.7, 0.2, weight) for weight in (0.0, 0.3, 1.0)],
    ],
)
def test_scores_of_mixes_are_those_of_a_search(
    mixes: list[mix.Mix], memory_budget: int, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow way: one index per mixture."""
    monkeypatch.setattr(mix, "BLOCK_BYTES", block_bytes)
    counts, rng = torch.arange(LABELS), torch.Generator().manual_seed(2)
    corpus = corpus_of(topics())._replace(counts=counts)
    sizes = {"refined": LABELS, "texts": LABELS, "centroids": LABELS, "tokens.weight": WORDS}
    done = {
        f"{number}.{key}": torch.randn(size, 8, generator=rng)
        for number in (0, 1)
        for key, size in sizes.items()
    }
    config, judged = SiameseConfig(width=8, members=2), First()
    given = replace(run(), judge=judged, memory_budget=memory_budget)
    result = mix.score_mixes(mixes, done, config, corpus, given)
    vectors = mix.encode(
        mix.encoders_of(done, config, len(corpus.idf)), corpus.documents.select(judged.queries)
    )
    for each in mixes:
        index = Exact(mix.mixture(done, each, 2, counts))
        extended = mix.with_column(vectors, each.popularity_weight, torch.tensor([0.5]))
        ids = index.search(extended, 3, judged.hidden(judged.queries)).ids
        assert result[each] == pytest.approx(float(judged.values(judged.queries, ids).mean()))
    assert len(set(result.values())) == 3


class Wanting:
    """A judge of one query that wants one candidate first."""

    def __init__(self, candidate: int) -> None:
        self.candidate, self.queries, self.depth = candidate, torch.tensor([0]), 1

    def hidden(self, queries: Tensor) -> Interactions:
        return from_pairs(queries[:0], queries[:0], None, (len(queries), LABELS))

    def values(self, _queries: Tensor, ids: Tensor) -> Tensor:
        return (ids[:, 0] == self.candidate).float()


def nearly_equal_labels(data: Dataset) -> tuple[Corpus, dict[str, Tensor]]:
    """Labels whose vectors are nearly the same: label 0 has the best, label 5 most documents."""
    rows = torch.arange(40).sort().values
    column = torch.where(rows < 30, 5, rows % 5)
    pairs = from_pairs(rows, column, None, (DOCUMENTS, LABELS))
    corpus = corpus_of(replace(data, train=pairs))
    encoder = BagEncoder(torch.randn(len(corpus.idf), 4), residual=False, rng=torch.Generator())
    with torch.no_grad():
        first = encoder(corpus.documents.select(torch.tensor([0])))
    vectors = first * (1 - 1e-3 * torch.arange(LABELS)[:, None])
    done = {f"0.{key}": vectors for key in ("refined", "texts", "centroids")}
    return corpus, {**done, "0.tokens.weight": encoder.tokens.weight.detach()}


@pytest.mark.parametrize("wanted", [0, 5])
def test_validation_chooses_the_popularity_weight(wanted: int) -> None:
    corpus, done = nearly_equal_labels(topics())
    judged = replace(run(), judge=Wanting(wanted))
    chosen, tried = mix.choose_mix(done, SiameseConfig(width=4), corpus, judged)
    assert (chosen.popularity_weight > 0) == (wanted == 5)
    assert len(tried) == 24
    assert max(each["score"] for each in tried) == 1.0


def test_given_weights_of_a_mix_are_kept() -> None:
    corpus, done = nearly_equal_labels(topics())
    config = SiameseConfig(width=4, popularity_weight=0.0, centroid_weight=0.2)
    judged = replace(run(), judge=Wanting(5))
    chosen, tried = mix.choose_mix(done, config, corpus, judged)
    assert chosen[1:] == (0.2, 0.0)
    assert len(tried) == len(mix.CLASSIFIER_SHARES)
    assert mix.choose_mix(done, config, corpus, run()) == (mix.Mix(0.75, 0.2, 0.0), [])


def test_members_scores_are_averaged() -> None:
    data = topics()
    assert data.query_texts is not None
    settings = {**SHORT, "classifier_share": 0.5, "centroid_weight": 0.0, "popularity_weight": 0.0}
    three = model_of(steps("siamesexml", data, run(), members=3, **settings))
    vectors = encode_texts(three, data.query_texts, "query")
    scores = vectors @ three.tensors["candidates"].T
    each = [
        vectors[:, part] @ three.tensors["candidates"][:, part].T * 3
        for part in (slice(0, 16), slice(16, 32), slice(32, 48))
    ]
    torch.testing.assert_close(scores, torch.stack(each).mean(dim=0))
    assert not torch.allclose(each[0], each[1])


@pytest.mark.parametrize("side", ["query", "candidate"])
def test_data_without_texts_is_refused(side: str) -> None:
    bare: dict[str, Any] = {f"{side}_texts": None}
    for name in NAMES:
        with pytest.raises(UserError, match="no texts of"):
            steps(name, replace(topics(), **bare), run())


def test_documents_without_labels_and_texts_without_words_are_harmless() -> None:
    data = topics()
    assert isinstance(data.train, Interactions)
    assert data.query_texts is not None
    assert data.candidate_texts is not None
    texts, labels = data.query_texts, data.candidate_texts
    offsets = texts.offsets.clone()
    offsets[1:6] = 0  # the first five documents have no words: theirs go to the sixth
    label_offsets = labels.offsets.clone()
    label_offsets[-1] = label_offsets[-2]  # the last label has no text
    odd = replace(
        data,
        query_texts=Texts(offsets, texts.tokens),
        candidate_texts=Texts(label_offsets, labels.tokens[:-1]),
    )
    for name in NAMES:
        model = model_of(steps(name, odd, run(), **SHORT))
        assert all(bool(tensor.isfinite().all()) for tensor in model.tensors.values())
        assert odd.query_texts is not None
        assert bool((best_candidates(model, odd.query_texts, 3) >= 0).all())


# ---------------------------------------------------------------------------------- the parts


def corpus_of(data: Dataset) -> Corpus:
    return build_corpus(data, SiameseConfig(pairs_from=0), run())


def test_mined_documents_are_the_nearest_wrong_ones() -> None:
    data = topics()
    corpus = corpus_of(data)
    encoder = BagEncoder(torch.randn(WORDS, 8), residual=False, rng=torch.Generator())
    result = mining.mine_documents(encoder, corpus, Exact)
    scores = encoder(corpus.labels) @ encoder(corpus.documents).T
    assert isinstance(data.train, Interactions)
    for label in range(LABELS):
        true = (data.train.candidates == label).nonzero().flatten()
        scores[label, data.train.query_of_pair()[true].long()] = -torch.inf
        scores[label, DOCUMENTS - 20 :] = -torch.inf  # not in train
    ids = result.long()[:, None]
    assert_same_ranking(TopK(ids, scores.gather(1, ids)), sorted_by(scores))


def test_shortlists_hold_the_nearest_by_text_and_by_documents() -> None:
    corpus = corpus_of(topics())
    encoder = BagEncoder(torch.randn(WORDS, 8), residual=False, rng=torch.Generator())
    with torch.no_grad():
        texts, vectors = encoder(corpus.labels), encoder(corpus.documents)
        result = mining.mine_shortlists(encoder, corpus, 4, Exact)
    assert len(result) == DOCUMENTS - 20
    middles = mining.centroids(encoder, corpus, texts)
    for row in range(0, DOCUMENTS - 20, 7):
        own = corpus.rows.select(torch.tensor([row])).candidates.long()
        listed = result[row][result[row] >= 0].long()
        near = torch.zeros(LABELS, dtype=torch.bool)
        for table in (texts, middles):  # of equal scores any may be listed
            scores = (vectors[row] @ table.T).index_fill(0, own, -torch.inf)
            best = scores.topk(2).values
            torch.testing.assert_close(scores[listed].topk(2).values, best, rtol=0, atol=1e-5)
            near |= scores >= best[-1] - 1e-5
        assert bool(near[listed].all())
        assert len(listed.unique()) == len(listed) <= 4


def test_centroids_are_means_of_documents() -> None:
    corpus = corpus_of(topics())
    encoder = BagEncoder(torch.randn(WORDS, 8), residual=False, rng=torch.Generator())
    with torch.no_grad():
        texts, vectors = encoder(corpus.labels), encoder(corpus.documents)
        result = mining.centroids(encoder, corpus, texts)
    for label in range(LABELS):
        owners = corpus.rows.query_of_pair()[corpus.rows.candidates == label].long()
        torch.testing.assert_close(result[label], unit(vectors[owners].sum(dim=0)))


def test_hardest_of_marks_the_largest_finite_scores() -> None:
    scores = torch.tensor([[0.1, 0.9, -torch.inf, 0.5], [-torch.inf, -torch.inf, 0.2, -torch.inf]])
    expected = torch.tensor([[False, True, False, True], [False, False, True, False]])
    assert torch.equal(modules.hardest_of(scores, 2), expected)


def test_draw_one_is_uniform() -> None:
    rows = from_pairs(torch.tensor([0, 0, 0, 1]), torch.tensor([2, 5, 7, 1]), None, (2, 9))
    rng = torch.Generator().manual_seed(0)
    both = torch.arange(2)
    drawn = torch.stack([modules.draw_one(rows, both, rng) for _ in range(3000)])
    assert set(drawn[:, 1].tolist()) == {1}
    counts = torch.bincount(drawn[:, 0].long(), minlength=9)[[2, 5, 7]]
    assert int(counts.sum()) == 3000
    assert int((counts - 1000).abs().max()) < 120


def test_padding_and_repeats() -> None:
    rows = from_pairs(torch.tensor([0, 0, 2]), torch.tensor([2, 5, 1]), None, (3, 9))
    assert modules.padded(rows).tolist() == [[2, 5], [-1, -1], [1, -1]]
    result = mining.without_repeats(torch.tensor([[3, 1, 3, 2], [0, 0, 0, -1]]))
    assert result.tolist() == [[1, 2, 3, -1], [-1, 0, -1, -1]]


def test_the_method_weighs_the_tokens() -> None:
    """Texts encoded later have the weights of training."""
    data = topics()
    plain = {"pairs_from": 0, "popularity_weight": 0.0}
    model = model_of(steps("siamesexml", data, run(), **SHORT, **plain))
    assert data.query_texts is not None
    encoder = BagEncoder(
        model.tensors["0.tokens.weight"].float(), residual=False, rng=torch.Generator()
    )
    expected = encoder(weigh(data.query_texts, model.tensors["rarity"]))
    torch.testing.assert_close(encode_texts(model, data.query_texts, "query"), expected)


KILLED = [("siamesexml", 0, 0), ("siamesexml", 0, 1), ("siamesexml", 0, 2)]
KILLED += [("siamesexml-paper", 0, 1), ("siamesexml-released", 0, 2), ("siamesexml-3", 1, 1)]
KILLED_ELSEWHERE = [("siamesexml-paper", 0, 0), ("siamesexml-paper", 0, 2)]
KILLED_ELSEWHERE += [("siamesexml-released", 0, 0), ("siamesexml-released", 0, 1)]
KILLED_ELSEWHERE += [("siamesexml-3", 0, 0), ("siamesexml-3", 2, 2)]


@pytest.mark.parametrize(
    ("name", "member", "stage"),
    [*KILLED, *(pytest.param(*place, marks=pytest.mark.slow) for place in KILLED_ELSEWHERE)],
)
def test_killed_in_any_module_and_resumed_gives_the_same_bits(
    name: str, member: int, stage: int, tmp_path: Path
) -> None:
    """A real SIGKILL of a real process, once a checkpoint of the module is on disk."""
    folder.save(topics(), tmp_path / "data")
    out, options = tmp_path / "model", small(name, **SHORT)
    code = (
        "import sys, time, rankfold as rf\n"
        "from rankfold.training import loop\n"
        "loop.PAUSE_SECONDS = -1.0\n"
        f"rf.fit({name!r}, sys.argv[1], out=sys.argv[2], checkpoint_seconds=0, "
        f"report=lambda *_: time.sleep(.02), **{options!r})\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "data"), str(out)]
    process = subprocess.Popen(command)
    kept = checkpoint.path_of(out)
    while not has_reached(kept, (member, stage)):
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not out.exists()
    resumed = rf.fit(name, tmp_path / "data", out=out, resume=True, **options)
    for key, tensor in never_killed(name).items():
        assert torch.equal(resumed.model.tensors[key], tensor)


@cache
def never_killed(name: str) -> Mapping[str, Tensor]:
    return rf.fit(name, topics(), **small(name, **SHORT)).model.tensors


def has_reached(kept: Path, place: tuple[int, int]) -> bool:
    """Whether a checkpoint of the place exists; one that is being replaced does not count."""
    try:
        state = checkpoint.load(kept).state if kept.exists() else None
    except UserError:
        return False
    return state is not None and (int(state["member"]), int(state["stage"])) >= place


def test_excluded_pairs_are_not_negatives() -> None:
    """Each label's nearest wrong document is excluded: the next one is mined."""
    data, encoder = (
        topics(),
        BagEncoder(torch.randn(WORDS, 8), residual=False, rng=torch.Generator()),
    )
    first = mining.mine_documents(encoder, corpus_of(data), Exact)
    order = first.argsort(stable=True)
    excluded = from_pairs(first[order], order, None, (DOCUMENTS, LABELS))
    second = mining.mine_documents(encoder, corpus_of(replace(data, excluded=excluded)), Exact)
    assert not bool((first == second).any())


def held_out() -> Dataset:
    """The topics with 20 documents for validation."""
    data = topics()
    assert isinstance(data.train, Interactions)
    rows = torch.arange(20, 40)
    held = data.train.select(rows)
    validation = from_pairs(
        rows[held.query_of_pair().long()], held.candidates, None, (DOCUMENTS, LABELS)
    )
    left = torch.ones(DOCUMENTS, dtype=torch.bool)
    left[rows] = False
    kept = left[data.train.query_of_pair().long()]
    train = from_pairs(
        data.train.query_of_pair()[kept], data.train.candidates[kept], None, (DOCUMENTS, LABELS)
    )
    return replace(data, train=train, validation=validation)


class Stop(Exception):
    pass


def stop_in_refit(history: History, _step: Step) -> None:
    if history.phase == "refit" and len(history.entries) > 10:
        raise Stop


def stop_before_refit(history: History, step: Step) -> None:
    """Ctrl-C during the last step of the first fit."""
    if history.phase == "fit" and step.final:
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("stop", [stop_in_refit, stop_before_refit])
@pytest.mark.parametrize("name", ["siamesexml", "siamesexml-released"])
def test_an_interrupted_refit_is_resumed(name: str, stop: Any, tmp_path: Path) -> None:
    """The choices of the first fit do not make it another fit: its checkpoint is used."""
    data = held_out()
    known = {field.name for field in fields(METHODS[name].config)}
    options = {key: value for key, value in {**SMALL, **SHORT}.items() if key in known}
    options["refit"] = True
    with pytest.raises((Stop, KeyboardInterrupt)):
        rf.fit(name, data, out=tmp_path / "m", checkpoint_seconds=0, report=stop, **options)
    resumed = rf.fit(name, data, out=tmp_path / "m", resume=True, **options)
    whole_fit = rf.fit(name, data, **options)
    for key, tensor in whole_fit.model.tensors.items():
        assert torch.equal(resumed.model.tensors[key], tensor)
    mixes = whole_fit.model.notes["mixes"]  # of the first fit: the second had nothing to choose
    assert len(mixes) > 1
    assert resumed.model.notes["mixes"] == mixes
