"""Encoders of texts that are registered by a user."""

from __future__ import annotations

from pathlib import Path

import pytest
import siamese_samples as samples
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

import rankfold as rf
from rankfold.encoders.bag_encoder import TEXT_ENCODERS, unit
from rankfold.errors import UserError
from rankfold.methods.text.siamesexml import fit as recipe
from rankfold.models.ranker import Ranker
from rankfold.types import Texts


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


@pytest.mark.parametrize("name", [name for name in samples.NAMES if name != "siamesexml-released"])
def test_a_custom_encoder_is_trained_saved_and_queried(
    name: str, widest: str, tmp_path: Path
) -> None:
    data = samples.topics()
    assert data.query_texts is not None
    many = {"encoder_epochs": 30, "classifier_epochs": 5, "joint_epochs": 10, "lr": 0.01}
    rf.fit(name, data, out=tmp_path / "model", **{**samples.SMALL, **many, "encoder": widest})
    ranker = rf.load(tmp_path / "model")
    assert isinstance(ranker, Ranker)
    assert "0.layer.weight" in ranker.model.tensors
    rows = torch.arange(samples.DOCUMENTS - 20, samples.DOCUMENTS)
    ids = samples.best_candidates(
        ranker.model, data.query_texts.select(rows), samples.LABELS // samples.TOPICS
    )
    assert float((ids % samples.TOPICS == (rows % samples.TOPICS)[:, None]).double().mean()) > 0.95


class FirstWord(Widest):
    """An encoder that depends on the order: a text is its first word."""

    def forward(self, texts: Texts) -> Tensor:
        assert bool((texts.counts() > 0).all())
        return unit(self.layer(self.table(texts.tokens[texts.offsets[:-1]].long())))


def test_a_custom_encoder_reads_tokens_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = samples.topics()
    assert data.query_texts is not None
    monkeypatch.setitem(TEXT_ENCODERS, "first", FirstWord)
    model = samples.model_of(
        samples.steps(
            "siamesexml", data, samples.run(), **samples.SHORT, encoder="first", pairs_from=0
        )
    )
    orders = ([5, 2, 3], [5, 3, 2, 2], [2, 5, 3], [2, 2])
    tokens = torch.tensor([token for order in orders for token in order], dtype=torch.int32)
    texts = Texts(torch.tensor([0, *map(len, orders)]).cumsum(0), tokens)
    result = samples.encode_texts(model, texts, "query")
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
    data = samples.topics()
    assert data.query_texts is not None
    made: list[Odd] = []

    def odd(start: Tensor, rng: torch.Generator) -> Odd:
        made.append(Odd(start, rng))
        return made[-1]

    monkeypatch.setitem(TEXT_ENCODERS, "odd", odd)
    state = torch.get_rng_state()
    first = recipe.start_module(
        samples.corpus_of(data), samples.config_of("siamesexml", encoder="odd"), samples.run(), 0
    )
    second = recipe.start_module(
        samples.corpus_of(data), samples.config_of("siamesexml", encoder="odd"), samples.run(), 0
    )
    assert torch.equal(torch.get_rng_state(), state)
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    start = first.encoder.state_dict()["table.weight"].clone()

    settings = {**samples.SHORT, "encoder": "odd", "classifier_batch_size": 16, "pairs_from": 0}
    model = samples.model_of(samples.steps("siamesexml-paper", data, samples.run(), **settings))
    assert torch.equal(model.tensors["0.table.weight"], start)  # it was frozen
    assert float(model.tensors["0.large"]) == 1e6
    assert made[2].seen == {(True, True), (True, False), (False, False)}
    before = torch.get_rng_state()
    samples.encode_texts(model, data.query_texts, "query")
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(5)  # other draws do not matter
    again = samples.model_of(samples.steps("siamesexml-paper", data, samples.run(), **settings))
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
        samples.steps("siamesexml", samples.topics(), samples.run(), encoder="bad")


def test_a_missing_encoder_is_named(
    widest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = samples.topics()
    rf.fit(
        "siamesexml",
        data,
        out=tmp_path / "model",
        **{**samples.SMALL, **samples.SHORT, "encoder": widest},
    )
    monkeypatch.delitem(TEXT_ENCODERS, widest)
    with pytest.raises(UserError, match="was fitted with 'widest' of the module"):
        rf.load(tmp_path / "model")
