"""Arrays by name, with or without splits, and their grades."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graded_samples import SPLITS

from rankfold.data.build.new_rows import read_rows
from rankfold.data.prepare import prepare
from rankfold.data.read import arrays
from rankfold.errors import UserError
from rankfold.types import Columns

SIZES = {"train": 20, "validation": 6, "test": 8}


def by_split(**arrays: Any) -> dict[str, Any]:
    """The arrays of ``n`` rows that the functions return, once per split."""
    return {f"{s}_{name}": make(n) for s, n in SIZES.items() for name, make in arrays.items()}


def numbers(n: int) -> Any:
    return np.arange(2.0 * n).reshape(n, 2)


def severity(n: int) -> Any:
    return np.arange(n) % 2


def shift(n: int) -> Any:
    """Grades that differ from the severity."""
    return np.arange(n) // 2 % 2


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_grades_by_split_may_have_any_name(shape: tuple[int, ...], tmp_path: Path) -> None:
    rows = by_split(X=numbers, severity=lambda n: severity(n).reshape(shape), labels=shift)
    np.savez(tmp_path / "d.npz", **rows)
    for source in (rows, tmp_path / "d.npz"):
        data = prepare(source, format="features", grade_column="severity")
        for name, n in SIZES.items():
            part = data.graded(name)  # type: ignore[arg-type]
            assert part.grades.tolist() == severity(n).tolist()
            assert np.array_equal(part.numbers.numpy(), numbers(n))


def test_named_grade_is_used_despite_another() -> None:
    rows = {"X": numbers(20), "y": severity(20), "labels": shift(20)}
    with pytest.raises(UserError, match="both y and labels"):
        prepare(rows, format="features")
    data = prepare(rows, format="features", grade_column="labels", split=(1.0, 0.0, 0.0))
    assert data.graded("train").grades.tolist() == shift(20).tolist()


@pytest.mark.parametrize(
    ("change", "grade", "message"),
    [
        ({"test_severity": None}, "severity", "no array 'test_severity'"),
        ({}, "shift", "no array 'train_shift'"),
        ({}, "train_severity", "no array 'train_train_severity'"),
    ],
)
def test_split_without_the_grade_is_refused(
    change: dict[str, Any], grade: str, message: str
) -> None:
    rows = by_split(X=numbers, severity=severity) | change
    rows = {name: values for name, values in rows.items() if values is not None}
    with pytest.raises(UserError, match=message) as caught:
        prepare(rows, format="features", grade_column=grade)
    assert caught.value.hint == f"it has {', '.join(sorted(rows))}"


@pytest.mark.parametrize(
    ("more", "grade", "message"),
    [
        ({"X": numbers(9)}, None, "has both X and train_X"),
        ({"X": numbers(9), "y": severity(9)}, None, "has both X and train_X"),
        ({"y": severity(9)}, None, "has both y and train_X"),
        ({"severity": severity(9)}, "severity", "has both severity and train_X"),
        ({"val_X": numbers(6)}, None, "has both val_X and validation_X"),
    ],
)
def test_repeated_rows_are_refused(more: dict[str, Any], grade: str | None, message: str) -> None:
    rows = by_split(X=numbers, y=severity, severity=severity) | more
    with pytest.raises(UserError, match=message) as caught:
        prepare(rows, format="features", grade_column=grade)
    assert caught.value.hint
    with pytest.raises(UserError, match="has both"):
        read_rows(rows, Columns(("number_0",), {}), grade_column=grade)


def test_other_arrays_are_ignored() -> None:
    rows = by_split(X=numbers, y=severity) | {
        "about": np.array("severe"),
        "train_seed": np.array(1),
    }
    data = prepare(rows, format="features")
    assert [data.summary[name]["rows"] for name in SIZES] == list(SIZES.values())


WHOLE = {"X": numbers(9), "stage": severity(9), "site": shift(9)[:, None], "maps": np.zeros((9, 3))}
NONE = "none of its arrays could be grades: add grades [n], one per split if there are splits"


@pytest.mark.parametrize(
    ("rows", "hint"),
    [
        (WHOLE, "it has site, stage; use --grade-column NAME"),
        (WHOLE | {"stage": severity(8)}, "it has site; use --grade-column NAME"),
        (by_split(X=numbers, stage=severity), "it has stage; use --grade-column NAME"),
        ({"X": numbers(9), "maps": np.zeros((9, 3))}, NONE),
        ({"X": numbers(9)[:, :1]}, NONE),
        (by_split(X=numbers) | {"train_y": severity(20)}, NONE),
        (by_split(X=numbers) | {"train_stage": severity(20)}, NONE),
    ],
)
def test_arrays_that_could_be_grades_are_named(rows: dict[str, Any], hint: str) -> None:
    with pytest.raises(UserError, match="cannot tell where the grades of the dict are") as caught:
        prepare(rows, format="features")
    assert caught.value.hint == hint


def test_arrays_named_by_a_hint_can_be_used() -> None:
    for rows in (WHOLE, by_split(X=numbers, stage=severity)):
        split = arrays.by_split(rows, None, "it")
        lengths = [len(arrays.to_rows(part, None, "it")) for _, part in split]
        hint = arrays.grade_hint([part for _, part in split], lengths)
        for name in hint.removeprefix("it has ").partition(";")[0].split(", "):
            assert prepare(rows, format="features", grade_column=name).summary["grade_names"] == [
                "0",
                "1",
            ]


# ---------------------------------------------------------------------------------- damage


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    rows = {"X": np.random.default_rng(0).normal(size=(30, 3)), "y": severity(30)}
    np.savez_compressed(tmp_path / "d.npz", **rows)
    return tmp_path / "d.npz"


def test_a_damaged_file_is_refused_or_read_as_it_was(packed: Path) -> None:
    """Whatever zipfile, zlib and numpy raise. The directory at its end is kept."""
    whole, result = packed.read_bytes(), arrays.load(packed)
    rng, refused = np.random.default_rng(0), 0
    for _ in range(400):
        spoilt = bytearray(whole)
        for place in rng.integers(0, whole.index(b"PK\1\2"), size=rng.integers(1, 4)):
            spoilt[place] = rng.integers(256)
        packed.write_bytes(spoilt)
        try:
            again = arrays.load(packed)
        except UserError as error:
            assert str(error).startswith("d.npz is damaged: ")  # noqa: PT017
            refused += 1
        else:
            assert all(np.array_equal(again[name], result[name]) for name in result)
    assert refused > 300


@pytest.mark.parametrize("place", [8, 10], ids=["flags", "compression"])  # in the directory
def test_an_archive_of_another_kind_is_refused(place: int, packed: Path) -> None:
    spoilt = bytearray(packed.read_bytes())
    spoilt[spoilt.index(b"PK\1\2") + place] ^= 0x21
    packed.write_bytes(spoilt)
    with pytest.raises(UserError, match=r"d\.npz is damaged"):
        arrays.load(packed)


def test_a_file_that_is_cut_off_is_damaged(packed: Path) -> None:
    whole = packed.read_bytes()
    for size in (3, 100, len(whole) - 10):
        packed.write_bytes(whole[:size])
        with pytest.raises(UserError, match=r"d\.npz is damaged"):
            arrays.load(packed)


def test_array_with_bytes_after_it_is_damaged(tmp_path: Path) -> None:
    """The shape in its header is too small, so the checksum at the end would not be read."""
    np.save(tmp_path / "X.npy", numbers(30))
    text = (tmp_path / "X.npy").read_bytes().replace(b"(30, 2)", b"(20, 2)")
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("X.npy", text)
    with pytest.raises(UserError, match=r"is damaged: X\.npy has bytes after its array"):
        arrays.load(tmp_path / "d.npz")


def test_other_files_of_an_archive_are_ignored(packed: Path) -> None:
    with zipfile.ZipFile(packed, "a") as archive:
        archive.writestr("readme.txt", "thirty rows")
    assert arrays.load(packed).keys() == {"X", "y"}
    assert prepare(packed, format="features").summary["rows"] == 30


def test_arrays_of_a_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(30, 12)).astype(np.float32)
    numbers[0, 3] = np.nan
    kinds = rng.integers(-1, 3, (30, 1))
    images = rng.integers(0, 255, (30, 4, 5), dtype=np.uint8)
    grades = np.arange(30)[:, None] % 3
    path = tmp_path / "rows.npz"
    np.savez(path, X=numbers, categories=kinds, images=images, labels=grades)
    data = prepare(path, format="features", split=(1.0, 0.0, 0.0))
    assert data.columns is not None
    assert data.columns.numbers == tuple(f"number_{i:02}" for i in range(12))
    assert data.columns.levels == {"category_0": ("0", "1", "2")}
    train = data.graded("train")
    assert np.array_equal(train.numbers.numpy(), numbers, equal_nan=True)
    assert np.array_equal(train.categories.numpy(), kinds)
    assert train.images is not None
    assert np.array_equal(train.images[..., 0].numpy(), images)
    assert train.grades.tolist() == grades[:, 0].tolist()


def test_arrays_by_split_as_medmnist_writes_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sizes = {"train": 20, "val": 6, "test": 8}
    arrays = {}
    for name, n in sizes.items():
        arrays[f"{name}_images"] = rng.integers(0, 255, (n, 4, 4, 3), dtype=np.uint8)
        arrays[f"{name}_labels"] = np.arange(n)[:, None] % 2
    np.savez(tmp_path / "m.npz", **arrays)
    data = prepare(tmp_path / "m.npz", format="features")
    assert data.columns is None
    for ours, theirs in (("train", "train"), ("validation", "val"), ("test", "test")):
        part = data.graded(ours)  # type: ignore[arg-type]
        assert part.images is not None
        assert np.array_equal(part.images.numpy(), arrays[f"{theirs}_images"])
    again = prepare(arrays, format="features", split="0.5,0.25,0.25")
    assert [again.summary[name]["rows"] for name in SPLITS] == [18, 8, 8]
