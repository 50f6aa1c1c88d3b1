"""The contract of every registered method, on data with a planted structure."""

import random
import time
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from rankings import assert_same_keys

import rankfold as rf
from rankfold.config import Settings, declarations, describe_type
from rankfold.methods import METHODS
from rankfold.models.ranker import Ranker
from rankfold.models.ranking import Ranking
from rankfold.types import Dataset, Interactions, Model, Step, Vocabulary, from_pairs

INTERACTIONS = [name for name, method in METHODS.items() if method.data_kind == "interactions"]
LEARNING = [
    name for name in INTERACTIONS if name != "popularity"
]  # the same ranking for every query
TEXTS = [name for name, method in METHODS.items() if method.data_kind == "texts"]


def checkerboard(size: int = 24) -> Dataset:
    """Even queries chose every even candidate but their own number; so did odd queries.

    Each query must rank its own number first: the only one of its colour that it has not chosen.
    """
    board = torch.tensor([[(q + c) % 2 == 0 for c in range(size)] for q in range(size)])
    own = torch.eye(size, dtype=torch.bool)
    train, test = ((board & ~own).nonzero(), own.nonzero())
    parts = (from_pairs(p[:, 0], p[:, 1], None, (size, size)) for p in (train, test))
    names = Vocabulary.numbered(size)
    return Dataset("interactions", next(parts), None, next(parts), names, names)


@pytest.mark.parametrize("name", METHODS)
def test_settings_are_frozen_and_have_defaults(name: str) -> None:
    config = METHODS[name].config
    assert is_dataclass(config)
    assert config.__dataclass_params__.frozen  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", METHODS)
def test_every_setting_has_one_line_of_help(name: str) -> None:
    config = METHODS[name].config
    declared = declarations(config)
    assert issubclass(config, Settings)
    assert list(declared) == [field.name for field in fields(config)]
    for setting in declared.values():
        assert 3 <= len(setting.help) <= 110
        assert "\n" not in setting.help


@pytest.mark.parametrize("name", METHODS)
def test_every_number_has_a_bound(name: str) -> None:
    """A limit accepts any number."""
    config, free = METHODS[name].config, {"largest"}
    for setting, declared in declarations(config).items():
        if "number" in describe_type(config, setting) and setting not in free:
            assert declared.bounds, setting


@cache
def fitted_to_board(name: str) -> tuple[Model, list[Step]]:
    """A model, and the steps of its fit."""
    steps: list[Step] = []
    ranker = rf.fit(name, checkerboard(), report=lambda _, step: steps.append(step))
    return ranker.model, steps


@pytest.mark.parametrize("name", INTERACTIONS)
class TestMethod:
    def test_model_is_plain_data_of_the_right_shape(self, name: str) -> None:
        model, _ = fitted_to_board(name)
        assert isinstance(model, Model)
        assert model.method == name
        opened, own = METHODS[name].open(model), METHODS[name].own_search
        by_history = "histories" in METHODS[name].answers
        assert (opened.histories is not None) is (by_history and not own)
        assert (opened.search_histories is not None) is (by_history and own)
        if own:
            train = checkerboard().split("train")
            assert torch.equal(model.tensors["offsets"], train.offsets)
            assert torch.equal(model.tensors["candidates_of_queries"], train.candidates)
        else:
            assert model.tensors["queries"].shape[0] == 24
            assert model.tensors["candidates"].shape[0] == 24
            assert model.tensors["queries"].shape[1] == model.tensors["candidates"].shape[1]
        assert all(tensor.isfinite().all() for tensor in model.tensors.values())

    def test_same_seed_same_model(self, name: str) -> None:
        first, second = fitted_to_board(name)[0].tensors, rf.fit(name, checkerboard()).model.tensors
        assert all(torch.equal(first[key], second[key]) for key in first)

    def test_steps_count_from_one_and_the_last_is_final(self, name: str) -> None:
        _, steps = fitted_to_board(name)
        numbers, finals = zip(*((s.number, s.final) for s in steps if s.whole), strict=True)
        assert list(numbers) == list(range(1, len(numbers) + 1))
        assert list(finals) == [False] * (len(numbers) - 1) + [True]

    def test_fold_in_gives_the_fitted_row(self, name: str) -> None:
        model, _ = fitted_to_board(name)
        fold_in = METHODS[name].open(model).histories
        if fold_in is None:
            pytest.skip(f"{name} has no fold-in")
        rows = checkerboard().split("train")
        torch.testing.assert_close(fold_in(rows), model.tensors["queries"], atol=1e-4, rtol=1e-4)

    def test_query_and_candidate_without_pairs_are_harmless(self, name: str) -> None:
        train = Interactions(torch.tensor([0, 2, 2, 3]), torch.tensor([0, 1, 0]).int(), None, 4)
        data = Dataset(
            "interactions", train, None, None, Vocabulary.numbered(3), Vocabulary.numbered(4)
        )
        tensors = rf.fit(name, data).model.tensors
        assert all(tensor.isfinite().all() for tensor in tensors.values())

    def test_an_empty_history_gets_the_most_popular(self, name: str) -> None:
        if "histories" not in METHODS[name].answers:
            pytest.skip(f"{name} answers no histories")
        result = rf.fit(name, ([1, 2, 3, 1, 2], [7, 7, 7, 5, 6])).search(history=[])
        assert result.keys == [[7, 5, 6]]
        assert result.scores.tolist() == [[3.0, 1.0, 1.0]]

    def test_one_query_one_candidate(self, name: str) -> None:
        train = Interactions(torch.tensor([0, 1]), torch.tensor([0]).int(), None, 1)
        one = Vocabulary.numbered(1)
        ranker = rf.fit(name, Dataset("interactions", train, None, None, one, one))
        assert ranker.search([0], include_seen=True).keys == [[0]]
        assert ranker.search([0]).keys == [[]]


@pytest.mark.parametrize("name", LEARNING)
def test_held_out_pairs_rank_first(name: str) -> None:
    """The width is the number of colours: a larger model memorises the board."""
    known = {field.name for field in fields(METHODS[name].config)}
    few = {key: value for key, value in {"width": 2, "epochs": 300}.items() if key in known}
    result = rf.fit(name, checkerboard(), **few).search(list(range(24)), k=1)
    assert [keys[0] for keys in result.keys] == list(range(24))


# ---------------------------------------------------------------------------------- texts

ANIMALS = ["ant", "bee", "cow", "dog", "eel", "fox"]


def farm(n: int = 60) -> Dataset:
    """Document i has the word of animal i % 6 and others; its label is that animal."""
    rng = random.Random(0)
    noise = [" ".join(rng.choices(["the", "big", "old", "farm", "has"], k=3)) for _ in range(n)]
    texts = [f"{words} {ANIMALS[i % 6]} {i % 4}" for i, words in enumerate(noise)]
    table = {"id": list(range(n)), "text": texts, "labels": [[ANIMALS[i % 6]] for i in range(n)]}
    return rf.prepare(pl.DataFrame(table), format="texts", split="queries:0.7,0.15,0.15")


@pytest.fixture(scope="module")
def written() -> Dataset:
    return farm()


@pytest.fixture(scope="module")
def models() -> dict[str, Ranker]:
    """A cache of fitted models."""
    return {}


@pytest.fixture
def fitted(request: pytest.FixtureRequest, written: Dataset, models: dict[str, Ranker]) -> Ranker:
    name = request.param
    if name not in models:
        models[name] = rf.fit(name, written, seed=3)
    return models[name]


@pytest.mark.parametrize("fitted", TEXTS, indirect=True)
class TestTextMethod:
    def test_model_is_plain_data_of_the_right_shape(self, fitted: Ranker) -> None:
        model, method = fitted.model, METHODS[fitted.model.method]
        opened = method.open(model)
        assert (opened.texts is None) is method.own_search
        assert (opened.search_texts is None) is not method.own_search
        assert "queries" not in model.tensors
        floating = [t for t in model.tensors.values() if t.is_floating_point()]
        assert all(tensor.isfinite().all() for tensor in floating)
        if opened.texts is not None:
            assert fitted.texts is not None
            vectors = opened.texts(fitted.texts, "query")
            assert model.tensors["candidates"].shape == (6, vectors.shape[1])
            assert vectors.shape[0] == len(fitted.queries)

    def test_same_seed_same_model(self, written: Dataset, fitted: Ranker) -> None:
        again = rf.fit(fitted.model.method, written, seed=3).model.tensors
        assert all(torch.equal(again[key], value) for key, value in fitted.model.tensors.items())

    def test_new_texts_get_their_label(self, written: Dataset, fitted: Ranker) -> None:
        result = fitted.search(text=[f"the old {animal}" for animal in ANIMALS], k=1)
        assert [keys[0] for keys in result.keys] == ANIMALS
        assert rf.evaluate(fitted, written, metrics="recall@1")["recall@1"] == 1.0

    def test_a_text_has_the_same_ranking_alone_and_in_a_batch(self, fitted: Ranker) -> None:
        texts = ["big dog", "", "the farm has a cow and an eel", "xyzzy", "fox fox fox"]
        together = fitted.search(text=texts)
        for row, text in enumerate(texts):
            among = Ranking(together.keys[row : row + 1], together.scores[row : row + 1])
            assert_same_keys(fitted.search(text=[text]), among, rtol=1e-4)

    def test_a_text_without_known_words_gets_the_most_popular(self, fitted: Ranker) -> None:
        counts = fitted.seen.candidate_counts()
        order = sorted(range(6), key=lambda row: (-int(counts[row]), row))
        expected = fitted.candidates.take(torch.tensor(order)).to_list()
        assert fitted.search(text=["", "xyzzy"]).keys == [expected] * 2

    def test_excluded_candidates_are_not_returned(self, fitted: Ranker) -> None:
        keys = fitted.queries.keys.to_list()
        whole = fitted.search(keys, include_seen=True)
        for row, (left, every) in enumerate(zip(fitted.search(keys).keys, whole.keys, strict=True)):
            seen = fitted.seen.select(torch.tensor([row])).candidates
            hidden = set(fitted.candidates.take(seen).to_list())
            assert left == [key for key in every if key not in hidden]

    def test_save_and_load_round_trip(self, fitted: Ranker, tmp_path: Path) -> None:
        fitted.save(tmp_path / "model")
        again = rf.load(tmp_path / "model")
        assert again.search(text=["old bee", ""]).keys == fitted.search(text=["old bee", ""]).keys

    def test_a_new_candidate_is_found_by_its_text(self, fitted: Ranker) -> None:
        if METHODS[fitted.model.method].own_search:
            pytest.skip(f"{fitted.model.method} has no vectors of texts")
        grown = fitted.extend(pl.DataFrame({"candidate": ["new"], "text": ["farm 3"]}))
        assert grown.search(text=["farm 3"], k=1).keys == [["new"]]
        assert grown.search(text=["old bee"], k=1).keys == [["bee"]]

    def test_unusual_texts_are_harmless(self, fitted: Ranker) -> None:
        """A document without words, one without labels, an unused label."""
        table = {"id": [0, 1, 2, 3], "text": ["a b", None, "a", "b"], "labels": ["x", "y", "", "x"]}
        labels = pl.DataFrame({"candidate": ["x", "y", "z"], "text": ["a", "?", "b"]})
        how: Any = {"format": "texts", "split": (1.0, 0.0, 0.0), "candidate_texts": labels}
        ranker = rf.fit(fitted.model.method, rf.prepare(pl.DataFrame(table), **how))
        result = ranker.search(text=["a", "", "b a"])
        assert [sorted(keys) for keys in result.keys] == [["x", "y", "z"]] * 3
        assert np.isfinite(result.scores).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", INTERACTIONS)
def test_the_seconds_of_the_steps_are_the_time_of_the_fit(name: str) -> None:
    """Nothing that a method does is left out, such as its start. Without validation."""
    rng = torch.Generator().manual_seed(0)
    queries, draws = torch.randint(0, 3000, (2, 150_000), generator=rng)
    pairs = torch.stack([queries, queries % 20 + draws // 20 * 20], dim=1).numpy()  # 20 groups
    rf.fit(name, pairs[:1000], **({"epochs": 1} if "epochs" in _names(name) else {}))  # warm
    data = rf.prepare(pairs, split=(1, 0, 0))
    began = time.perf_counter()
    model = rf.fit(name, data, **({"epochs": 2} if "epochs" in _names(name) else {})).model
    wall = time.perf_counter() - began
    spent = sum(entry["seconds"] for entry in model.notes["history"])
    assert spent <= wall
    assert spent >= 0.9 * wall - 0.05  # the plan and the keys of the model


def _names(name: str) -> set[str]:
    return {field.name for field in fields(METHODS[name].config)}
