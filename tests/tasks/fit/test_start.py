"""Fits that start from a fitted model: what they take over, and which models they refuse."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from commands import Command

import rankfold as rf
from rankfold.data.build.tokens import vocabulary_of
from rankfold.errors import UserError
from rankfold.models.ranker import Ranker
from rankfold.types import Dataset

TOPICS = ["tea", "maps", "ships", "birds"]
PLAIN: dict[str, Any] = {
    **{"width": 16, "linear_weight": 0.0, "neighbour_weight": 0.0, "classifier_share": 1.0},
    **{"centroid_weight": 0.0, "popularity_weight": 0.0},
}


def prepared(path: Path, documents: int, topics: list[str], tokens: str = "word") -> Dataset:
    """Documents about one topic each; those about birds have words of their own."""
    rng = np.random.default_rng(0)
    own = rng.integers(0, len(topics), documents)
    words = rng.integers(0, 12, (documents, 4))
    texts = [
        " ".join([f"{topics[topic]}{word % 5}" for word in row] + [f"w{row[0]}"])
        for topic, row in zip(own, words, strict=True)
    ]
    table = pl.DataFrame(
        {"id": range(documents), "text": texts, "labels": [[topics[t]] for t in own]}
    )
    split = "queries:0.7,0.2,0.1"
    return rf.prepare(table, format="texts", split=split, tokens=tokens, out=path)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("start")
    prepared(home / "before", 150, TOPICS[:3])
    prepared(home / "now", 200, TOPICS)
    rf.fit("siamesexml", home / "before", out=home / "model", **PLAIN)
    return home


def ranker_at(path: Path) -> Ranker:
    model = rf.load(path)
    assert isinstance(model, Ranker)
    return model


def test_known_words_and_candidates_are_taken_over(home: Path) -> None:
    before = ranker_at(home / "model")
    none = {"encoder_epochs": 0, "joint_epochs": 0}
    now = rf.fit("siamesexml", home / "now", from_model=home / "model", **PLAIN, **none)
    assert isinstance(now, Ranker)
    vocabularies = [vocabulary_of(model.tokenizer) or [] for model in (before, now)]
    both = sorted({*vocabularies[0]} & {*vocabularies[1]})
    assert len(both) < len(vocabularies[1])
    rows = [[words.index(word) for word in both] for words in vocabularies]
    assert rows[0] != rows[1]  # known words have other numbers
    tables = [model.model.tensors["0.tokens.weight"].float() for model in (before, now)]
    torch.testing.assert_close(tables[1][rows[1]], tables[0][rows[0]])
    new = [row for row, word in enumerate(vocabularies[1]) if word not in both]
    assert (tables[1][new].norm(dim=1) > 0.5).all()  # as at the start of any fit
    for topic in TOPICS[:3]:
        vectors = [m.model.tensors["candidates"][m.candidates.find([topic])] for m in (before, now)]
        torch.testing.assert_close(vectors[1], vectors[0], atol=2e-3, rtol=0)
    own = now.searcher.opened.texts
    assert own is not None
    torch.testing.assert_close(
        now.model.tensors["candidates"][now.candidates.find(["birds"])],
        own(now.tokens(["birds"], "candidate"), "candidate"),
        atol=2e-3,
        rtol=0,
    )
    about = now.model.notes["from_model"]
    assert about["candidates"] == 3
    assert about["tokens"] == len(both)
    assert about["data"] == before.model.notes["data"]


def test_pairs_of_words_are_taken_over(home: Path) -> None:
    """A pair is two tokens, both of which have other numbers in the new data."""
    before = ranker_at(home / "model")
    now = rf.fit("siamesexml", home / "now", from_model=before, joint_epochs=0, **PLAIN)
    assert isinstance(now, Ranker)

    def by_words(model: Ranker) -> dict[tuple[str, str], torch.Tensor]:
        words, pairs = vocabulary_of(model.tokenizer) or [], model.model.tensors["pairs"]
        table = model.model.tensors["0.tokens.weight"][len(words) :].float()
        n = len(words)
        names = [(words[one // n], words[one % n]) for one in pairs.tolist()]
        return dict(zip(names, table, strict=True))

    old, new = by_words(before), by_words(now)
    both = old.keys() & new.keys()
    assert len(both) > 3
    assert all(torch.equal(old[pair], new[pair]) for pair in both)


def test_it_knows_without_training_what_the_model_knew(home: Path) -> None:
    def score(**options: Any) -> float:
        none = {"encoder_epochs": 0, "joint_epochs": 0}
        model = rf.fit("siamesexml", home / "now", **PLAIN, **none, **options)
        return rf.evaluate(model, home / "now", metrics="ndcg@10")["ndcg@10"]

    assert score(from_model=home / "model") > score() + 0.1


def test_it_takes_fewer_epochs(home: Path) -> None:
    cold = rf.fit("siamesexml", home / "now", **PLAIN)
    warm = rf.fit("siamesexml", home / "now", from_model=home / "model", **PLAIN)
    steps = [len(model.model.notes["history"]) for model in (cold, warm)]
    assert steps[1] < steps[0] / 2


def test_the_command_has_it_and_resumes(home: Path, tmp_path: Path, rankfold: Command) -> None:
    own = [f"--set={name}={value:g}" for name, value in PLAIN.items()]
    arguments = ["fit", "siamesexml", home / "now", "--from", home / "model", *own]
    told = json.loads(rankfold(*arguments, "--out", tmp_path / "m", "--json").out)
    assert told["notes"]["from_model"]["candidates"] == 3
    again = rankfold(*arguments, "--out", tmp_path / "m", "--resume")
    assert "already finished" in again.err
    more = "--set=encoder_epochs=0", "--set=joint_epochs=2"
    other = rankfold(
        "fit", "siamesexml", home / "now", *own, *more, "--out", tmp_path / "m", "--resume"
    )
    assert other.code == 2
    assert "finished with from_model" in other.err


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("siamesexml", {"width": 8}, "the model to start from has width=16, not 8"),
        ("siamesexml", {"encoder": "residual", "width": 16}, "has encoder=plain, not residual"),
        ("siamesexml-3", {"width": 16}, "was fitted by siamesexml, not by siamesexml-3"),
        ("text-linear", {}, "a fit of text-linear cannot start from a model"),
        ("siamesexml", {"from_model": 3}, "`from_model` must be a model or its folder, got int"),
    ],
)
def test_other_models_are_refused(
    home: Path, method: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        rf.fit(method, home / "now", **{"from_model": home / "model", **settings})


def test_other_tokens_are_refused(home: Path, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    data = prepared(tmp_path / "pieces", 150, TOPICS[:3], "word-piece")
    with pytest.raises(UserError, match="make words in different ways"):
        rf.fit("siamesexml", data, from_model=home / "model", **PLAIN)
