"""Unusual and broken interactions: every method gives finite vectors or a clear error."""

from dataclasses import fields

import polars as pl
import pytest
import torch

import rankfold as rf
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.models.ranker import Ranker
from rankfold.types import Dataset, Interactions, Vocabulary, from_pairs

NAMES = [name for name, method in METHODS.items() if method.data_kind == "interactions"]
WEIGHTED = [name for name in NAMES if "weights" in {f.name for f in fields(METHODS[name].config)}]
each_method = pytest.mark.parametrize("name", NAMES)

ALL = torch.ones(6, 5)
CHESS = (torch.arange(8)[:, None] + torch.arange(6)) % 2
ONE_HAS_ALL = torch.cat([torch.ones(1, 6).long(), CHESS])
ONE_HAS_NONE = torch.cat([torch.zeros(1, 6).long(), CHESS])
ONE_FOR_ALL = torch.cat([torch.ones(8, 1).long(), CHESS], dim=1)
ONE_FOR_NONE = torch.cat([torch.zeros(8, 1).long(), CHESS], dim=1)
SHAPES = {
    "all queries with all candidates": ALL,
    "a query with all candidates": ONE_HAS_ALL,
    "a query without pairs": ONE_HAS_NONE,
    "a candidate of all queries": ONE_FOR_ALL,
    "a candidate without queries": ONE_FOR_NONE,
    "one query": torch.tensor([[1, 0, 1, 0, 0]]),
    "one candidate": torch.tensor([[1], [0], [1]]),
    "one pair": torch.tensor([[0, 0, 0], [0, 1, 0]]),
    "identical queries": torch.tensor([[1, 1, 0, 0]] * 5),
    "one candidate per query": torch.eye(5),
}


def dataset(chosen: torch.Tensor, grades: torch.Tensor | None = None) -> Dataset:
    m, n = chosen.shape
    train = from_pairs(*(chosen > 0).nonzero().unbind(dim=1), grades, (m, n))
    return Dataset(
        "interactions", train, None, None, Vocabulary.numbered(m), Vocabulary.numbered(n)
    )


def check(ranker: Ranker, chosen: torch.Tensor) -> None:
    """Tensors are finite, and each query with pairs gets every other candidate once."""
    assert all(tensor.isfinite().all() for tensor in ranker.model.tensors.values())
    queries = chosen.any(dim=1).nonzero().flatten().tolist()
    for query, keys in zip(queries, ranker.search(queries, k=50).keys, strict=True):
        assert sorted(keys) == (chosen[query] == 0).nonzero().flatten().tolist()


@pytest.mark.parametrize("shape", SHAPES)
@each_method
def test_unusual_shapes(name: str, shape: str) -> None:
    """The default widths, 64 and 256, exceed all of them."""
    check(rf.fit(name, dataset(SHAPES[shape])), SHAPES[shape])


@pytest.mark.parametrize("inner", ["cg", "cholesky"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["ials", "wrmf", "rg2-weighted", "rgx"])
def test_unusual_shapes_without_regularisation(name: str, shape: str, inner: str) -> None:
    check(rf.fit(name, dataset(SHAPES[shape]), reg=0.0, inner=inner, sweeps=4), SHAPES[shape])


@pytest.mark.parametrize("name", ["popularity", "rg2", "ials", "ease"])
def test_repeated_rows_of_a_table_count_once(name: str) -> None:
    queries, candidates = ([int(x) for x in part] for part in CHESS.nonzero().unbind(dim=1))
    twice = pl.DataFrame({"query": queries * 2, "candidate": candidates * 2})
    once, repeated = (rf.fit(name, frame).model.tensors for frame in (twice.unique(), twice))
    assert all(torch.equal(once[key], repeated[key]) for key in once)


@pytest.mark.parametrize("grade", [float("nan"), float("inf"), -2.0, 0.0])
@pytest.mark.parametrize("name", ["rg2", "ials", "puresvd"])
def test_table_rows_with_a_bad_grade_are_left_out(name: str, grade: float) -> None:
    """See docs/guide/prepare.md."""
    columns = {"query": [0, 0, 1, 1, 2], "candidate": [0, 1, 1, 2, 0]}
    bad = pl.DataFrame({**columns, "grade": [1.0, grade, 2.0, 1.0, 3.0]})
    good = bad.filter(pl.Series([True, False, True, True, True]))
    actual, expected = (rf.fit(name, frame, weights="grade").model.tensors for frame in (bad, good))
    assert all(torch.equal(actual[key], expected[key]) for key in expected)


@pytest.mark.parametrize("grade", [float("nan"), float("inf"), -2.0, 0.0])
@pytest.mark.parametrize("name", ["rg2", "ials"])
def test_data_with_a_bad_grade_is_refused(name: str, grade: float) -> None:
    """A hand-made or damaged dataset; grades must be above 0."""
    grades = torch.ones(int(CHESS.sum()))
    grades[3] = grade
    with pytest.raises(UserError, match=r"grade|damaged"):
        rf.fit(name, dataset(CHESS, grades), weights="grade")


@pytest.mark.parametrize("name", [name for name in WEIGHTED if name != "rgx-sampled"])
def test_grades_are_used_as_weights(name: str) -> None:
    data = dataset(CHESS, 1.0 + torch.arange(int(CHESS.sum())) % 3)
    check(rf.fit(name, data, weights="grade"), CHESS)


def test_a_method_without_grades_refuses_them() -> None:
    data = dataset(CHESS, 1.0 + torch.arange(int(CHESS.sum())) % 3)
    with pytest.raises(UserError, match="grade") as error:
        rf.fit("rgx-sampled", data, weights="grade")
    assert error.value.hint


@each_method
def test_candidates_out_of_range_are_refused(name: str) -> None:
    train = Interactions(torch.tensor([0, 1, 2]), torch.tensor([0, 9]).int(), None, 3)
    data = Dataset("interactions", train, None, None, *(Vocabulary.numbered(n) for n in (2, 3)))
    with pytest.raises(UserError, match="train pairs are damaged"):
        rf.fit(name, data)


@each_method
def test_an_empty_table_is_refused(name: str) -> None:
    with pytest.raises(UserError):
        rf.fit(name, pl.DataFrame({"query": [], "candidate": []}, schema_overrides={"query": int}))
