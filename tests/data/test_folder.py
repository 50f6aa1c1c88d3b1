"""Prepared data is loaded from its folder unchanged, and files are read on use."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

from rankfold.data import folder
from rankfold.data.prepare import prepare
from rankfold.errors import UserError
from rankfold.types import Dataset, Graded, Interactions, Vocabulary

SPLITS = ("train", "validation", "test", "excluded")


def same(a: Any, b: Any) -> bool:
    """Equal splits, of equal types."""
    if a is None or b is None:
        return a is b
    tensors, others = folder.to_tensors(a), folder.to_tensors(b)
    return (
        type(a) is type(b)
        and tensors.keys() == others.keys()
        and all(torch.equal(tensors[n], others[n]) for n in tensors)
        and all(tensors[n].dtype == others[n].dtype for n in tensors)
        and getattr(a, "n_candidates", None) == getattr(b, "n_candidates", None)
    )


def assert_same(a: Dataset, b: Dataset) -> None:
    assert all(same(getattr(a, name), getattr(b, name)) for name in SPLITS)
    assert (a.kind, a.summary, a.fingerprint) == (b.kind, b.summary, b.fingerprint)
    for mine, theirs in ((a.queries, b.queries), (a.candidates, b.candidates)):
        assert len(mine) == len(theirs)
        assert mine.keys.equals(theirs.keys, check_dtypes=True)


@pytest.fixture
def ratings() -> pl.DataFrame:
    rows = [(f"ü{u}", i, 1 + (u * i) % 3) for u in range(6) for i in range(u + 1)]
    return pl.DataFrame(rows, schema=["user", "item", "rating"], orient="row")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"grade_column": "none"},
        {"split": (1, 0, 0)},
        {"min_grade": 2},
    ],
    ids=str,
)
def test_saved_data_is_loaded(
    options: dict[str, Any], ratings: pl.DataFrame, tmp_path: Path
) -> None:
    data = prepare(ratings, **options)
    folder.save(data, tmp_path / "data")
    assert_same(folder.load(tmp_path / "data"), data)


def test_prepare_with_out_returns_the_folder(ratings: pl.DataFrame, tmp_path: Path) -> None:
    given_back = prepare(ratings, out=tmp_path / "data")
    assert_same(given_back, prepare(ratings))
    assert_same(given_back, folder.load(str(tmp_path / "data")))


def test_excluded_pairs_are_saved(ratings: pl.DataFrame, tmp_path: Path) -> None:
    data = prepare(ratings)
    assert isinstance(data.train, Interactions)
    excluding = Dataset(
        data.kind,
        data.train,
        data.validation,
        data.test,
        data.queries,
        data.candidates,
        excluded=data.train,
        fingerprint="f",
    )
    folder.save(excluding, tmp_path / "data")
    assert_same(folder.load(tmp_path / "data"), excluding)


def test_graded_rows_are_saved(tmp_path: Path) -> None:
    images = torch.arange(24, dtype=torch.uint8).reshape(2, 2, 2, 3)
    numbers = torch.tensor([[1.0, torch.nan], [2.0, 3.0]]).nan_to_num(7.0)
    for pictures in (images, None):
        rows = Graded(numbers, torch.tensor([[1], [-1]]).int(), pictures, torch.tensor([0, 2]))
        grades = Vocabulary(3, lambda: pl.Series(["low", "middle", "high"]).sort())
        data = Dataset("graded", rows, None, rows, Vocabulary.numbered(2), grades)
        folder.save(data, tmp_path / "data")
        assert_same(folder.load(tmp_path / "data"), data)


def test_keys_are_not_read_before_they_are_needed(ratings: pl.DataFrame, tmp_path: Path) -> None:
    prepare(ratings, out=tmp_path / "data")
    data = folder.load(tmp_path / "data")
    for path in (tmp_path / "data").glob("queries-*.parquet"):
        path.write_bytes(bytes(path.stat().st_size))
    assert len(data.queries) == 6
    assert data.train.counts().sum() == data.summary["train"]  # type: ignore[union-attr]
    with pytest.raises(UserError, match=r"queries-.*\.parquet"):
        data.queries.find(["ü1"])


def test_tensors_are_mapped_and_not_copied(ratings: pl.DataFrame, tmp_path: Path) -> None:
    prepare(ratings, out=tmp_path / "data")
    (file,) = (tmp_path / "data").glob("train-*.safetensors")
    train = folder.load(tmp_path / "data").split("train")
    expected = train.candidates.clone()
    with file.open("r+b") as raw:  # the last bytes of the file are grades
        raw.seek(-4, 2)
        raw.write(torch.tensor([77.0]).numpy().tobytes())
    assert train.grades is not None
    assert train.grades[-1] == 77.0
    assert torch.equal(train.candidates, expected)


def test_other_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no folder"):
        folder.load(tmp_path / "none")
    with pytest.raises(UserError, match="is not a rankfold folder"):
        folder.load(tmp_path)


def test_folder_that_cannot_be_written_is_refused_before_reading(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").touch()
    with pytest.raises(UserError, match="was not written by rankfold"):
        prepare(tmp_path / "none.csv", out=tmp_path / "out")
