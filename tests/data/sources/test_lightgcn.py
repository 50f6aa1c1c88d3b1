from pathlib import Path

import pytest
import zstandard

import rankfold as rf
from rankfold.data.read.reading import Reading
from rankfold.data.sources.lightgcn import read
from rankfold.errors import UserError
from rankfold.types import TEST, TRAIN, VALIDATION

TRAIN_TXT = """\
0 0 1 2 3 4
1 5 1 6
2 7 8 9 10 2 11
3 12
4 
5 13 3
"""  # noqa: W291 - a user without training items has a space behind it
TEST_TXT = "0 7\n1 2 9\n2 0\n5 4 12\n"
TRAIN_ROWS = [
    *((0, item) for item in (0, 1, 2, 3, 4)),
    *((1, item) for item in (5, 1, 6)),
    *((2, item) for item in (7, 8, 9, 10, 2, 11)),
    (3, 12),
    *((5, item) for item in (13, 3)),
]
TEST_ROWS = [(0, 7), (1, 2), (1, 9), (2, 0), (5, 4), (5, 12)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.txt").write_text(TRAIN_TXT)
    (tmp_path / "data" / "test.txt").write_text(TEST_TXT)
    (tmp_path / "data" / "user_list.txt").write_text("org_id remap_id\nA1 0\n")
    return tmp_path / "data"


def test_rows_of_each_split(folder: Path, reading: Reading) -> None:
    splits = read([folder], reading)
    assert {n: rows.collect().rows() for n, rows in splits.items()} == {
        TRAIN: TRAIN_ROWS,
        TEST: TEST_ROWS,
    }


def test_files_in_any_order_with_validation(folder: Path, reading: Reading) -> None:
    (folder / "valid.txt.zst").write_bytes(zstandard.compress(b"0 13\n"))
    names = ("valid.txt.zst", "test.txt", "train.txt")
    splits = read([folder / name for name in names], reading)
    assert list(splits) == [TRAIN, VALIDATION, TEST]
    assert splits[VALIDATION].collect().rows() == [(0, 13)]


@pytest.mark.parametrize("name", ["gowalla", "yelp2018", "amazon-book"])
def test_prepared_data_has_the_published_split(name: str, folder: Path) -> None:
    data = rf.prepare(folder, source=name, validation_share=0)
    assert data.validation is None
    assert data.split("train").n_pairs == len(TRAIN_ROWS)
    assert data.split("test").n_pairs == len(TEST_ROWS)
    assert data.summary["source"] == name


def test_validation_is_taken_from_train_only(folder: Path) -> None:
    data = rf.prepare(folder, source="gowalla")
    assert data.split("test").n_pairs == len(TEST_ROWS)
    assert data.split("train").n_pairs + data.split("validation").n_pairs == len(TRAIN_ROWS)
    assert data.split("validation").n_pairs == 2  # of the two users with five pairs or more


def test_another_split_may_be_drawn(folder: Path) -> None:
    data = rf.prepare(folder, source="gowalla", split=(1.0, 0.0, 0.0))
    assert data.split("train").n_pairs == len(TRAIN_ROWS) + len(TEST_ROWS)


def test_missing_file_is_named(folder: Path, reading: Reading) -> None:
    (folder / "test.txt").unlink()
    with pytest.raises(UserError, match=r"expected train\.txt, test\.txt .* got train\.txt"):
        read([folder], reading)
