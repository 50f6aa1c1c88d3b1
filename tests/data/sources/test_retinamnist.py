import numpy as np
import pytest
import torch

from rankfold.data.prepare import prepare
from rankfold.data.sources.retinamnist import FILE
from rankfold.types import Dataset, Graded

GRADES = {
    "train": [486, 128, 206, 194, 66],
    "validation": [54, 12, 28, 20, 6],
    "test": [174, 46, 92, 68, 20],
}


@pytest.fixture
def data() -> Dataset:
    return prepare(source="retinamnist")


def test_splits_and_grades_are_the_official_ones(data: Dataset) -> None:
    assert data.kind == "graded"
    for name, grades in GRADES.items():
        split = getattr(data, name)
        assert isinstance(split, Graded)
        assert split.grades.dtype == torch.int64
        assert split.grades.bincount().tolist() == grades
        assert data.summary[name] == {"rows": sum(grades), "grades": grades}


def test_images_stay_with_their_grades(data: Dataset) -> None:
    with np.load(FILE, allow_pickle=False) as arrays:
        for name, key in (("train", "train"), ("validation", "val"), ("test", "test")):
            split = getattr(data, name)
            assert split.images.dtype == torch.uint8
            assert split.images.shape == (len(split), 28, 28, 3)
            assert np.array_equal(split.images.numpy(), arrays[f"{key}_images"])
            assert split.grades.tolist() == arrays[f"{key}_labels"][:, 0].tolist()


def test_graded_rows_take_no_side_features(data: Dataset) -> None:
    assert isinstance(data.train, Graded)
    assert data.train.numbers.shape == data.train.categories.shape == (1080, 0)
    assert data.train.numbers.dtype == torch.float32
    assert data.train.categories.dtype == torch.int32


def test_keys_are_numbers(data: Dataset) -> None:
    assert data.queries.keys.to_list() == list(range(1600))
    assert data.candidates.keys.to_list() == [0, 1, 2, 3, 4]


def test_data_has_a_fingerprint_and_names(data: Dataset) -> None:
    assert data.fingerprint.startswith("365d6f91a020961c")
    assert data.candidates.texts is not None
    assert data.candidates.texts.to_list() == ["0", "1", "2", "3", "4"]
    assert data.summary["images"] == [28, 28, 3]
