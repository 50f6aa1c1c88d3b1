"""Splits that are given as files, and splits by time."""

from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from prepared_splits import splits_of, table

from rankfold.data.prepare import prepare
from rankfold.errors import UserError

# ---------------------------------------------------------------------------------- given splits


def test_given_splits_stay_as_they_are(tmp_path: Path) -> None:
    train = table(tmp_path / "train.csv", [("a", 1), ("a", 2), ("b", 1)])
    validation = table(tmp_path / "validation.csv", [("a", 3), ("a", 1)])
    test = table(tmp_path / "test.csv", [("b", 4), ("a", 3), ("c", 1), ("b", 1)])
    data = prepare(train=train, validation=validation, test=test)
    assert {name: set(part) for name, part in splits_of(data).items()} == {
        "train": {("a", 1), ("a", 2), ("b", 1)},
        "validation": {("a", 3)},
        "test": {("b", 4), ("c", 1)},
    }
    assert data.summary["dropped"] == [{"why": "repeated pair", "rows": 3}]


def test_given_validation_is_kept(tmp_path: Path) -> None:
    train = table(tmp_path / "train.csv", [("a", i) for i in range(50)])
    validation = table(tmp_path / "validation.csv", [("a", 50)])
    summary = prepare(train=train, validation=validation, validation_share=0.5).summary
    assert (summary["train"], summary["validation"], summary["test"]) == (50, 1, 0)


def test_validation_is_carved_if_it_is_not_given(tmp_path: Path) -> None:
    train = table(tmp_path / "train.csv", [(u, i) for u in range(3) for i in range(20)])
    test = table(tmp_path / "test.csv", [(u, 50) for u in range(3)])
    splits = splits_of(prepare(train=train, test=test, validation_share=0.25))
    assert Counter(query for query, _ in splits["validation"]) == {0: 5, 1: 5, 2: 5}
    assert set(splits["test"]) == {(u, 50) for u in range(3)}
    assert len(splits["train"]) == 45
    none = splits_of(prepare(train=train, test=test, validation_share=0))
    assert (len(none["train"]), len(none["validation"])) == (60, 0)
    again = splits_of(prepare(train=train, test=test, validation_share=0.25, seed=1))
    assert again["validation"] != splits["validation"]


def test_split_may_have_several_files(tmp_path: Path) -> None:
    parts = [str(table(tmp_path / f"{i}.csv", [(i, i)])) for i in range(3)]
    data = prepare(train=parts[:2], test=f"{tmp_path}/2*.csv")
    assert (data.summary["train"], data.summary["test"]) == (2, 1)


def test_splits_may_be_tables_in_memory() -> None:
    train = pl.DataFrame({"user": ["a", "b"], "item": ["x", "y"]})
    data = prepare(train=train, test=pl.DataFrame({"user": ["a"], "item": ["y"]}))
    assert set(splits_of(data)["test"]) == {("a", "y")}


def test_splits_without_pairs_to_train_are_refused(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("user,item\n")
    test = table(tmp_path / "test.csv", [("a", 1)])
    with pytest.raises(UserError, match="none of the 1 pairs is in train"):
        prepare(train=tmp_path / "train.csv", test=test)


def test_given_splits_exclude_other_inputs(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", [("a", 1)])
    with pytest.raises(UserError, match="given splits need a train file and no other input"):
        prepare(path, train=path)
    with pytest.raises(UserError, match="given splits need a train file"):
        prepare(test=path)


def test_grades_in_one_split_only_are_refused(tmp_path: Path) -> None:
    train = table(tmp_path / "train.csv", [("a", 1, 5)])
    test = table(tmp_path / "test.csv", [("a", 2)])
    with pytest.raises(UserError, match="train has a grade column, test has none"):
        prepare(train=train, test=test)
    assert prepare(train=train, test=test, grade_column="none").summary["test"] == 1


# ---------------------------------------------------------------------------------- time


def test_last_takes_the_latest(ratings: Path) -> None:
    splits = splits_of(prepare(ratings, split="last"))
    assert {u: i for u, i in splits["test"]} == {f"u{u:02}": u + 1 for u in range(1, 12)}
    assert {u: i for u, i in splits["validation"]} == {f"u{u:02}": u for u in range(3, 12)}


def test_time_splits_at_the_cut(ratings: Path) -> None:
    splits = splits_of(prepare(ratings, split="time:505", validation_share=0.2))
    times = {name: [100 * i + int(u[1:]) for u, i in part] for name, part in splits.items()}
    assert min(times["test"]) >= 505 > max(times["train"] + times["validation"])
    assert min(times["validation"]) > max(times["train"])
    earlier = len(times["train"]) + len(times["validation"])
    assert len(times["validation"]) == round(0.2 * earlier)


def test_split_by_time_without_times_is_refused(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", [("a", 1)])
    with pytest.raises(UserError, match="needs the time of each pair") as error:
        prepare(path, split="last")
    assert "--time-column" in error.value.hint


def test_bad_time_matters_only_for_splits_by_time(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", [("a", 1, 1, "soon"), ("a", 2, 1, 5)])
    assert prepare(path).summary["pairs"] == 2
    assert prepare(path, split="last").summary["pairs"] == 1
