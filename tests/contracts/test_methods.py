"""What every registered method must do, tested once, on data with a planted structure."""

from dataclasses import fields, is_dataclass

import pytest
import torch

import rankfold as rf
from rankfold.methods import METHODS
from rankfold.types import Dataset, Interactions, Model, Vocabulary, from_pairs

LEARNING = [name for name in METHODS if name != "popularity"]  # cannot tell queries apart
INTERACTIONS = [name for name, method in METHODS.items() if method.data_kind == "interactions"]


def checkerboard(size: int = 24) -> Dataset:
    """Even queries chose every even candidate but their own number; odd ones likewise.

    What each query must get first is its own number: the only one of its colour it has not chosen.
    """
    board = torch.tensor([[(q + c) % 2 == 0 for c in range(size)] for q in range(size)])
    own = torch.eye(size, dtype=torch.bool)
    train, test = ((board & ~own).nonzero(), own.nonzero())
    parts = (from_pairs(p[:, 0], p[:, 1], None, (size, size)) for p in (train, test))
    names = Vocabulary.numbered(size)
    return Dataset("interactions", next(parts), None, next(parts), names, names)


@pytest.mark.parametrize("name", INTERACTIONS)
class TestMethod:
    def test_settings_are_frozen_and_have_defaults(self, name: str) -> None:
        config = METHODS[name].config
        assert is_dataclass(config)
        assert config.__dataclass_params__.frozen  # type: ignore[attr-defined]
        assert not hasattr(config(), "__dict__")

    def test_model_is_plain_data_of_the_right_shape(self, name: str) -> None:
        ranker = rf.fit(name, checkerboard())
        model = ranker.model
        assert isinstance(model, Model)
        assert model.method == name
        if METHODS[name].search is not None:
            train = checkerboard().split("train")
            assert torch.equal(model.tensors["offsets"], train.offsets)
            assert torch.equal(model.tensors["candidates_of_queries"], train.candidates)
        else:
            assert model.tensors["queries"].shape[0] == 24
            assert model.tensors["candidates"].shape[0] == 24
            assert model.tensors["queries"].shape[1] == model.tensors["candidates"].shape[1]
        assert all(tensor.isfinite().all() for tensor in model.tensors.values())

    def test_same_seed_same_model(self, name: str) -> None:
        first, second = (rf.fit(name, checkerboard(), seed=3).model.tensors for _ in range(2))
        assert all(torch.equal(first[key], second[key]) for key in first)

    def test_steps_count_from_one_and_say_which_is_the_last(self, name: str) -> None:
        seen = []
        rf.fit(name, checkerboard(), report=lambda _, step: seen.append((step.number, step.final)))
        numbers, finals = zip(*seen, strict=True)
        assert list(numbers) == list(range(1, len(numbers) + 1))
        assert list(finals) == [False] * (len(numbers) - 1) + [True]

    def test_fold_in_gives_the_fitted_row(self, name: str) -> None:
        fold_in = METHODS[name].fold_in
        if fold_in is None:
            pytest.skip(f"{name} has no fold-in")
        data = checkerboard()
        ranker = rf.fit(name, data)
        rows = data.split("train")
        torch.testing.assert_close(
            fold_in(ranker.model, rows), ranker.model.tensors["queries"], atol=1e-4, rtol=1e-4
        )

    def test_query_and_candidate_without_pairs_do_no_harm(self, name: str) -> None:
        train = Interactions(torch.tensor([0, 2, 2, 3]), torch.tensor([0, 1, 0]).int(), None, 4)
        data = Dataset(
            "interactions", train, None, None, Vocabulary.numbered(3), Vocabulary.numbered(4)
        )
        tensors = rf.fit(name, data).model.tensors
        assert all(tensor.isfinite().all() for tensor in tensors.values())

    def test_an_empty_history_gets_the_most_popular(self, name: str) -> None:
        method = METHODS[name]
        if method.fold_in is None and method.search is None:
            pytest.skip(f"{name} answers no histories")
        found = rf.fit(name, ([1, 2, 3, 1, 2], [7, 7, 7, 5, 6])).search(history=[])
        assert found.keys == [[7, 5, 6]]
        assert found.scores.tolist() == [[3.0, 1.0, 1.0]]

    def test_one_query_one_candidate(self, name: str) -> None:
        train = Interactions(torch.tensor([0, 1]), torch.tensor([0]).int(), None, 1)
        one = Vocabulary.numbered(1)
        ranker = rf.fit(name, Dataset("interactions", train, None, None, one, one))
        assert ranker.search([0], include_seen=True).keys == [[0]]
        assert ranker.search([0]).keys == [[]]


@pytest.mark.parametrize("name", LEARNING)
def test_what_was_withheld_is_found(name: str) -> None:
    """By as many components as there are colours: with more, some learn the board by heart."""
    known = {field.name for field in fields(METHODS[name].config)}
    few = {key: value for key, value in {"width": 2, "epochs": 300}.items() if key in known}
    found = rf.fit(name, checkerboard(), **few).search(list(range(24)), k=1)
    assert [keys[0] for keys in found.keys] == list(range(24))
