"""Graded rows that cannot be prepared are refused with a hint."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from graded_samples import write_images

from rankfold import fit
from rankfold.data.build.new_rows import read_rows
from rankfold.data.prepare import prepare
from rankfold.errors import UserError
from rankfold.types import Columns

ROWS = pl.DataFrame({"x": range(9), "y": ["a", "b", "c"] * 3})
ABC = {"grade_column": "y", "grades": "a,b,c"}


@pytest.mark.parametrize(
    ("table", "options", "message", "hint"),
    [
        (ROWS, {"grade_column": "z"}, "no column 'z'", "it has x, y; use --grade-column"),
        (ROWS, {}, "cannot tell where the grades", "--grade-column"),
        (
            ROWS,
            {"grade_column": "y"},
            "text, which has no natural order: a,b,c",
            "--grades LOWEST",
        ),
        (
            ROWS,
            {"grade_column": "y", "grades": "a,b,q"},
            "no row of the table has the grade 'q'",
            "a, b, c",
        ),
        (ROWS, {"grade_column": "y", "grades": "a,b,a"}, "'a' is given twice", "once"),
        (ROWS, {"grade_column": "y", "grades": "a"}, "one grade only: 'a'", "at least two"),
        (ROWS.with_columns(y=1), {"grade_column": "y"}, "one grade only: '1'", "at least two"),
        (ROWS.with_columns(y=None), {"grade_column": "y"}, "no grade in any row", "at least two"),
        (ROWS[:0], {"grade_column": "y"}, "no usable rows", "right file"),
        (ROWS, {**ABC, "drop": "q"}, "no column 'q' to drop", "x"),
        (ROWS, {**ABC, "drop": "x"}, "no column of features", "x: named by"),
        (ROWS, {**ABC, "split": "queries:5,5"}, "cannot be split by 'queries:5,5'", "0.8"),
        (
            ROWS,
            {**ABC, "split": "0.8,0.3,0.1"},
            "not three shares that add up to 1",
            "write --split 0.8,0.1,0.1 (shares of the rows of each grade)",
        ),
        (ROWS, {**ABC, "kcore": 3}, "take no --kcore", "leave it out"),
        (ROWS, {"grade_column": "y", "header": False}, "take no --no-header", "leave it out"),
        (
            ROWS,
            {"grade_column": "y", "image_size": 0},
            "`image_size` must be at least 1 and at most 4096, got 0",
            "pixels",
        ),
        (
            ROWS,
            {"grade_column": "y", "format": "table", "grades": "a"},
            "pairs take no --grades",
            "features",
        ),
        (
            pl.DataFrame({"x": range(200), "y": np.arange(200) / 7}),
            {"grade_column": "y"},
            "200 different values",
            "right column",
        ),
        (np.zeros((3, 2)), {"grade_column": "y"}, "cannot read rows from ndarray", ".npz"),
        ({"a": [1]}, {}, "no array of rows: it has a", "numbers"),
        ({"X": [[1.0]], "y": [1, 2]}, {}, "different row counts", "numbers"),
        ({"X": [1.0], "y": [1]}, {}, r"has shape \(1,\), not \[n, F\]", "numbers"),
        ({"X": [["a"]], "y": [1]}, {}, "the numbers of the dict have type", "numbers"),
        ({"X": [[1.0]], "features": [[1.0]], "y": [1]}, {}, "both X and features", "same"),
        ({"X": [[1.0]], "y": [1]}, {"grade_column": "z"}, "no array 'z'", "X, y"),
        (
            {"X": [[1.0]], "y": [1]},
            {"query_column": "z"},
            "the dict has no column 'z'",
            "no columns",
        ),
        (
            {"images": np.zeros((2, 3, 9, 9), np.uint8), "y": [1, 2]},
            {},
            "have shape",
            "channels",
        ),
        ({"images": np.zeros((2, 9, 9)), "y": [1, 2]}, {}, "have type float64", "uint8"),
        ({"images": np.zeros((2, 9, 9), np.uint8)}, {}, "cannot tell where the grades", "none"),
        (
            {"images": np.zeros((4, 0, 0), np.uint8), "y": [1, 2] * 2},
            {},
            "have 0 x 0 pixels",
            "at least 1",
        ),
        (
            {"images": np.zeros((4, 7, 0), np.uint8), "y": [1, 2] * 2},
            {},
            "have 7 x 0 pixels",
            "at least 1",
        ),
        ({"X": np.zeros((4, 0)), "y": [1, 2] * 2}, {}, "no column of features", "grades only"),
        (
            {
                "train_images": np.zeros((2, 9, 9), np.uint8),
                "train_labels": [0, 1],
                "test_images": np.zeros((2, 8, 8), np.uint8),
                "test_labels": [0, 1],
            },
            {},
            "have shape",
            "same height",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_inputs_and_options_are_refused(
    table: Any, options: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        prepare(table, **({"format": "features"} | options))
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pl.Series([[1], [2]]), r"List\(Int64\)"),
        (pl.Series([[1], [2]], dtype=pl.Array(pl.Int64, 1)), "Array"),
        (pl.Series([timedelta(1), timedelta(2)]), "Duration"),
        (pl.Series([{"a": 1}, {"a": 2}]), "Struct"),
        (pl.Series([complex(1), None], dtype=pl.Object), "complex"),
        (pl.Series([b"\xff", b"\xfe"]), "bytes that are not text"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_types_that_are_not_grades_are_refused(values: pl.Series, kind: str) -> None:
    table = pl.DataFrame({"x": range(10), "y": pl.concat([values] * 5)})
    for grades in (None, ["1", "2"]):
        with pytest.raises(UserError, match=f"the grades in 'y' are {kind}") as caught:
            prepare(table, format="features", grade_column="y", grades=grades)
        assert "numbers, text or dates" in caught.value.hint
    with pytest.raises(UserError, match=f"the grades in 'y' are {kind}"):
        read_rows(table, Columns(("x",), {}), grade_column="y", grades=["1", "2"])


@pytest.mark.parametrize(
    "kind", ["timedelta64[s]", "timedelta64[ms]", "datetime64[Y]", "complex128", "V8"]
)
def test_missing_grades_list_the_possible_arrays(kind: str, tmp_path: Path) -> None:
    rows = {"X": np.arange(30.0)[:, None], "y": (np.arange(30) % 3).astype(kind)}
    np.savez(tmp_path / "rows.npz", **rows)
    words = {"timedelta64[ms]": "Duration", "V8": "void"}.get(kind, kind)
    for source in (rows, tmp_path / "rows.npz"):
        with pytest.raises(UserError, match=re.escape(words)) as caught:
            prepare(source, format="features")
        assert "numbers" in caught.value.hint


def test_incompatible_types_are_refused() -> None:
    plain = pl.DataFrame({"x": range(9), "y": [0, 1, 2] * 3})
    for other in (plain.with_columns(pl.concat_list(name)) for name in ("x", "y")):
        with pytest.raises(UserError, match=r"incompatible types.*List") as caught:
            prepare(train=plain, test=other, format="features", grade_column="y")
        assert "numbers or text" in caught.value.hint


def test_an_image_of_one_pixel_can_be_fitted() -> None:
    """One pixel is the minimum."""
    images = np.arange(40, dtype=np.uint8).reshape(40, 1, 1)
    data = prepare({"images": images, "y": np.arange(40) // 20}, format="features")
    assert data.summary["images"] == [1, 1, 1]
    scores = fit("ce", data, epochs=1).score(data.graded("test"))
    assert bool(scores.isfinite().all())


def test_grade_without_training_rows_is_refused() -> None:
    with pytest.raises(UserError, match="no row of the grade 'c' is in train"):
        prepare(
            train=ROWS.filter(pl.col("y") != "c"),
            test=ROWS,
            format="features",
            grade_column="y",
            grades="a,b,c",
        )


def test_files_with_different_columns_are_refused(tmp_path: Path) -> None:
    ROWS.write_csv(tmp_path / "a.csv")
    ROWS.rename({"x": "z"}).write_csv(tmp_path / "b.csv")
    with pytest.raises(UserError, match=r"b.csv has no column 'x', a.csv has one"):
        prepare(tmp_path / "*.csv", format="features", grade_column="y", grades="a,b,c")


def test_npz_of_objects_or_without_arrays_is_refused(tmp_path: Path) -> None:
    images = np.empty(2, dtype=object)
    images[:] = [np.zeros((2, 2), np.uint8), np.zeros((3, 3), np.uint8)]
    np.savez(tmp_path / "a.npz", images=images, labels=[0, 1])
    with pytest.raises(UserError, match=r"a.npz: it holds Python objects") as caught:
        prepare(tmp_path / "a.npz", format="features")
    assert "resize them" in str(caught.value.hint)
    (tmp_path / "b.npz").write_bytes(b"PK\x03\x04 and then nothing")
    (tmp_path / "c.npz").write_bytes(b"")
    (tmp_path / "d.csv").write_text("")
    np.save(tmp_path / "e.npy", np.zeros(3))
    (tmp_path / "e.npy").rename(tmp_path / "e.npz")
    for name in ("b.npz", "c.npz", "d.csv", "e.npz"):
        with pytest.raises(UserError, match=name):
            prepare(tmp_path / name, format="features", grade_column="y")


def test_folder_without_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "eyes" / "0").mkdir(parents=True)
    with pytest.raises(UserError, match="has no images"):
        prepare(tmp_path / "eyes", format="features")
    (tmp_path / "eyes" / "0" / "a.png").write_text("no image")
    with pytest.raises(UserError, match="has no images") as caught:
        prepare(tmp_path / "eyes", format="features")
    assert "a.png" in str(caught.value.hint)


def test_images_without_folders_have_no_grade(tmp_path: Path) -> None:
    home = write_images(tmp_path / "eyes") / "0"
    with pytest.raises(UserError, match="no grade in any row"):
        prepare(home, format="features")


def test_sources_refuse_options_that_they_set_themselves() -> None:
    for options in ({"split": "0.5,0.2,0.3"}, {"grades": "0,1"}):
        with pytest.raises(UserError, match="official splits and grades"):
            prepare(source="retinamnist", **options)
    with pytest.raises(UserError, match="take no --grade-column"):
        prepare(source="retinamnist", grade_column="y")
