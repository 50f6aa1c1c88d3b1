"""Probabilities of results: they equal the shares of right results, and rise with the score."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import rankfold as rf
from rankfold.errors import UserError
from rankfold.models import probabilities
from rankfold.models.ranker import Ranker
from rankfold.models.ranking import SearchSpec
from rankfold.serve.search import answer
from rankfold.types import Dataset, Model, TopK, from_pairs

COLOURS = ["red", "green", "blue", "grey", "black"]


def lists(n: int) -> tuple[TopK, torch.Tensor]:
    """Results of three candidates; one of score s is right with probability s."""
    rng = torch.Generator().manual_seed(0)
    scores = torch.rand(n, 3, generator=rng).sort(descending=True).values
    ids = torch.arange(3).expand(n, 3).clone()
    ids[0, 2] = -1
    return TopK(ids, scores), torch.rand(n, 3, generator=rng) < scores


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Texts name their colour in two of three cases."""
    rng = np.random.default_rng(0)
    own = rng.integers(0, 5, 400)
    said = np.where(rng.random(400) < 0.67, own, rng.integers(0, 5, 400))
    texts = [f"a {COLOURS[colour]} thing {row % 7}" for row, colour in enumerate(said)]
    table = pl.DataFrame({"id": range(400), "text": texts, "labels": [[COLOURS[c]] for c in own]})
    out = tmp_path_factory.mktemp("data") / "colours"
    return rf.prepare(table, format="texts", split="queries:0.5,0.3,0.2", out=out)


def test_probabilities_are_the_shares_of_right_results() -> None:
    found, right = lists(1500)
    note = probabilities.learn(found, right)
    assert note is not None
    model = Model("words", {}, {}, {probabilities.NOTE: note})
    values = probabilities.at(model, torch.tensor([[0.1, 0.5], [0.9, -torch.inf]]))
    torch.testing.assert_close(values, torch.tensor([[0.1, 0.5], [0.9, 0]]), atol=0.1, rtol=0)
    assert note["error"] < 0.05
    assert len(note["reliability"]) == 10
    by_chance = torch.rand(1500, 3, generator=torch.Generator().manual_seed(1)) < 0.5
    spoilt = Model("words", {}, {}, {probabilities.NOTE: probabilities.learn(found, by_chance)})
    values = probabilities.at(spoilt, torch.arange(0.1, 0.91, 0.1))
    torch.testing.assert_close(values, torch.full((9,), 0.5), atol=0.15, rtol=0)
    assert probabilities.learn(found, torch.ones_like(right)) is None
    assert probabilities.learn(TopK(found.ids[:1], found.scores[:1]), right[:1]) is None


def test_popular_results_have_their_share_of_the_queries() -> None:
    chosen = from_pairs(torch.tensor([0, 1, 2, 2]), torch.tensor([1, 1, 0, 1]), None, (4, 3))
    found, right = lists(1500)
    model = Model("words", {}, {}, {probabilities.NOTE: probabilities.learn(found, right)})
    lists_of = TopK(torch.tensor([[1, 0, 2, -1]] * 2), torch.tensor([[4.0, 3, 2, -torch.inf]] * 2))
    known = torch.tensor([False, True])
    values = probabilities.of_lists(model, lists_of, chosen, known)
    torch.testing.assert_close(values[0], torch.tensor([1, 1 / 3, 0, 0]))
    torch.testing.assert_close(values[1], probabilities.at(model, lists_of.scores)[1])


def answer_texts(model: Ranker, texts: list[str]) -> list[dict[str, Any]]:
    """The first results over HTTP."""
    (document,) = answer(model, [SearchSpec("text", texts, 1)])
    assert isinstance(document, bytes)
    return [result["candidates"][0] for result in json.loads(document)["results"]]


@pytest.mark.parametrize("options", [{}, {"refit": True}])
def test_predictions_keep_what_is_probable(
    data: Dataset, tmp_path: Path, options: dict[str, Any]
) -> None:
    model = rf.fit("text-linear", data, out=tmp_path / "model", **options)
    assert isinstance(model, Ranker)
    assert model.model.notes["probabilities"]["error"] < 0.15
    texts = pl.DataFrame({"text": ["a blue thing", "zzz", "grey"]})
    every = rf.predict(model, texts, min_probability=0.0, k=5).to_polars()
    assert every.columns == ["query", "rank", "candidate", "score", "probability"]
    assert len(every) == 15
    first = every.filter(pl.col("rank") == 1)
    assert first["candidate"][0] == "blue"
    assert 0.5 < first["probability"][0] < 0.95
    assert first["probability"][1] < 0.4  # no known word: the share of the most popular
    some = rf.predict(rf.load(tmp_path / "model"), texts, min_probability=0.45, k=5).to_polars()
    assert some.equals(every.filter(pl.col("probability") >= 0.45))
    assert 1 <= len(some) <= 3
    scores = every["score"].to_numpy()[:5].reshape(1, 5)
    np.testing.assert_allclose(model.probabilities(scores)[0], every["probability"][:5])
    same = model.search(text=list(texts["text"]), k=5).to_polars()
    np.testing.assert_allclose(same["probability"], every["probability"], rtol=1e-5)
    assert model.search(text="grey", pin=["red"]).probabilities is None
    (answer,) = answer_texts(model, ["grey"])
    assert answer["probability"] == pytest.approx(every["probability"][10], rel=1e-5)


def test_models_without_probabilities_refuse(data: Dataset) -> None:
    model = rf.fit("popularity", data)
    with pytest.raises(UserError, match="no probabilities"):
        rf.predict(model, pl.DataFrame({"query": [0]}), min_probability=0.5)
