"""New rows for a fitted model."""

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from graded_samples import prepared, write_images

from rankfold.data.build.new_rows import read_rows
from rankfold.data.prepare import prepare
from rankfold.data.read.reading import Reading
from rankfold.errors import UserError
from rankfold.types import Columns


def test_new_rows_are_read_by_the_columns_of_a_model(patients: pl.DataFrame) -> None:
    columns = Columns(("age",), {"sex": ("f", "m")})
    new = pl.DataFrame(
        {"sex": ["m", "x", None], "other": [1, 2, 3], "age": ["4", "", "6.5"], "id": [7, 8, 9]}
    )
    rows, keys = read_rows(new, columns)[:2]
    assert rows.numbers[:, 0].nan_to_num(-1.0).tolist() == [4.0, -1.0, 6.5]
    assert rows.categories[:, 0].tolist() == [1, -1, -1]
    assert rows.grades.tolist() == [-1, -1, -1]
    assert rows.images is None
    assert keys.to_list() == [0, 1, 2]
    assert read_rows(new, columns, key_column="id").keys.to_list() == [7, 8, 9]
    same = read_rows(patients, columns, grade_column="severity", grades=["low", "high"]).rows
    assert same.grades.tolist() == [(0, -1, 1)[i % 3] for i in range(30)]


def test_new_rows_equal_the_prepared_ones(patients: pl.DataFrame, tmp_path: Path) -> None:
    data = prepared(patients, split=(1.0, 0.0, 0.0))
    patients.drop("severity").write_csv(tmp_path / "new.csv")
    rows = read_rows(str(tmp_path / "new.csv"), data.columns).rows
    train = data.graded("train")
    torch.testing.assert_close(rows.numbers, train.numbers, equal_nan=True)
    assert torch.equal(rows.categories, train.categories)


@pytest.mark.parametrize("dtype", [pl.List(pl.Float32), pl.Array(pl.Float64, 12)])
def test_vectors_made_elsewhere_become_numbers(dtype: pl.DataType, tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(40, 12)).astype(np.float32)
    ragged = [[1.0] * (1 + i % 2) for i in range(40)]
    columns = {"v": pl.Series(vectors.tolist(), dtype=dtype), "r": ragged, "g": [0, 1] * 20}
    pl.DataFrame(columns).write_parquet(tmp_path / "rows.parquet")
    options = {"format": "features", "grade_column": "g", "split": (1.0, 0.0, 0.0)}
    data = prepare(tmp_path / "rows.parquet", **options)
    assert data.columns is not None
    assert data.columns.numbers == tuple(f"v.{place:02}" for place in range(12))
    assert data.summary["left_out"] == [{"column": "r", "why": "it holds List(Float64)"}]
    np.testing.assert_allclose(data.graded("train").numbers, vectors)
    some = pl.DataFrame({"v": [vectors[7].tolist(), None]}, schema={"v": dtype})
    new = read_rows(some, data.columns).rows.numbers
    np.testing.assert_allclose(new[0], vectors[7])
    assert bool(new[1].isnan().all())


@pytest.mark.parametrize(
    ("values", "levels", "written"),
    [
        (pl.Series([True, False, None]), ("false", "true", "unknown"), ["true", "false", ""]),
        (pl.Series([True, False, None]), ("False", "True", "unknown"), ["True", "False", ""]),
        (pl.Series([2.0, 1.0, None]), ("1", "2", "other"), ["2", "1", ""]),
        (pl.Series([2.0, 1.0, float("nan")]), ("1.0", "2.0", "other"), ["2.0", "1.0", ""]),
        (pl.Series([2, 1, None]), ("1.0", "2.0", "other"), ["2.0", "1.0", ""]),
    ],
    ids=["truth", "Truth", "whole", "whole 1.0", "integers 1.0"],
)
def test_a_table_in_memory_equals_its_file(
    values: pl.Series, levels: tuple[str, ...], written: list[str], tmp_path: Path
) -> None:
    """Even if a file spells booleans and whole numbers differently."""
    columns = Columns(("n",), {"word": levels})
    (tmp_path / "new.csv").write_text("n,word\n" + "".join(f"1,{word}\n" for word in written))
    table = pl.DataFrame({"n": [1, 1, 1], "word": values})
    for source in (table, table.to_pandas(), tmp_path / "new.csv"):
        assert read_rows(source, columns).rows.categories[:, 0].tolist() == [1, 0, -1]


def test_columns_that_a_model_needs_are_named(patients: pl.DataFrame) -> None:
    with pytest.raises(UserError, match="no columns 'age', 'sex', which the model"):
        read_rows(patients.drop("age", "sex"), Columns(("age",), {"sex": ("m",)}))


@pytest.mark.parametrize("age", [3.5e38, -1e308, math.inf, "1e39", " -inf "])
def test_a_number_that_is_too_large_is_refused_with_its_place(age: float | str) -> None:
    new = pl.DataFrame({"age": pl.Series([1, None, age], strict=False)})
    with pytest.raises(UserError, match=r"between -3.4e\+38 and 3.4e\+38, got .*\(the table:3\)"):
        read_rows(new, Columns(("age",), {}))


@pytest.mark.parametrize(
    ("ages", "content", "hint"),
    [
        (["1", "NA", "n. d.", "4"], r"'n\. d\.' \(new\.csv:4\)", "correct this row, or leave"),
        (["1", "x", "y", "z"], r"'x' \(new\.csv:3\)", "correct it and 2 similar rows, or leave"),
        (["x", "y"], r"'x' \(new\.csv:2\)", "the types that the model was fitted with"),
    ],
)
def test_word_among_the_numbers_of_new_rows_is_reported_with_its_place(
    ages: list[str], content: str, hint: str, tmp_path: Path
) -> None:
    (tmp_path / "new.csv").write_text("\n".join(["sex,age", *(f"m,{age}" for age in ages)]))
    with pytest.raises(UserError, match=f"column 'age' of new.csv holds {content}, but") as caught:
        read_rows(tmp_path / "new.csv", Columns(("age",), {}))
    assert hint in caught.value.hint


def test_bad_lines_of_new_rows_are_refused_or_noted(tmp_path: Path, reading: Reading) -> None:
    (tmp_path / "new.csv").write_text("age,b\n1,2\n3,4,5\n6,7\n")
    with pytest.raises(UserError, match=r"new.csv:3"):
        read_rows(tmp_path / "new.csv", Columns(("age",), {}))
    rows, keys = read_rows(tmp_path / "new.csv", Columns(("age",), {}), reading=reading)[:2]
    assert rows.numbers[:, 0].tolist() == [1.0, 6.0]
    assert keys.to_list() == [0, 2]
    assert reading.bad.counts == {"a wrong number of columns": 1}


KEEL = "@relation r\n@attribute age real\n@attribute y {a, b}\n@data\n"


@pytest.mark.parametrize(
    ("files", "numbers"),
    [
        ({"a.csv": 'age,b\n\n0,"x\ny"\n1,"z"z\n\n2,x\n3\n4,x\n5,x,x\n'}, [0, 2, 4]),
        ({"a.tsv": "age\tb\n0\n1\n2\tx\n3\n4\n5\n6\tx\n"}, [2, 6]),
        ({"a.jsonl": '{"age": 0}\n\nnone\n{"age": 2}\n'}, [0, 2]),
        ({"a.dat": f"{KEEL}0, a\n% no row\n\n1\nx, b\n3, a\nz, a\n5, b\n"}, [0, 3, 5]),
        (
            {"a.csv": "age,b\n0\n1,x\n2\n", "b.csv": "age,b\n3,x\n", "c.csv": "age,b\n4\n5,x\n"},
            [1, 3, 5],
        ),
        ({"a.csv": "age,b\n0,x\n\n1,x\n"}, [0, 1]),
    ],
)  # fmt: skip
def test_new_rows_have_their_number_in_the_input(
    files: dict[str, str], numbers: list[int], tmp_path: Path, reading: Reading
) -> None:
    """The age is the number of the row; dropped rows count, blank lines do not."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    rows, keys = read_rows(str(tmp_path / "?.*"), Columns(("age",), {}), reading=reading)[:2]
    assert keys.to_list() == rows.numbers[:, 0].tolist() == numbers


def test_new_images(tmp_path: Path) -> None:
    home = write_images(tmp_path / "eyes")
    rows, keys = read_rows(home, None, image_shape=(5, 6, 1))[:2]
    assert rows.images is not None
    assert rows.images.shape == (30, 5, 6, 1)
    assert keys[0] == "0/0.png"
    assert rows.grades.unique().tolist() == [-1]
    graded = read_rows(home, None, image_shape=(5, 6, 3), grades=["0", "1", "2"]).rows
    assert graded.grades.tolist() == [g for g in range(3) for _ in range(10)]
    images = np.zeros((4, 5, 6, 3), dtype=np.uint8)
    np.savez(tmp_path / "new.npz", images=images)
    assert len(read_rows(tmp_path / "new.npz", None, image_shape=(5, 6, 3)).rows) == 4
    with pytest.raises(UserError, match="5 x 6 x 3, but the model takes 8 x 8 x 3"):
        read_rows(tmp_path / "new.npz", None, image_shape=(8, 8, 3))
    with pytest.raises(UserError, match="has no images"):
        read_rows(pl.DataFrame({"a": [1]}), None, image_shape=(8, 8, 3))
    for source in (home, home / "0" / "0.png"):
        with pytest.raises(UserError, match="takes no images"):
            read_rows(source, Columns(("age",), {}))


def test_one_new_image(tmp_path: Path) -> None:
    home = write_images(tmp_path / "eyes")
    every = read_rows(home, None, image_shape=(5, 6, 1)).rows
    rows, keys = read_rows(home / "0" / "1.png", None, image_shape=(5, 6, 1))[:2]
    assert keys.to_list() == ["1.png"]
    assert rows.images is not None
    assert every.images is not None
    assert torch.equal(rows.images[0], every.images[1])
    assert read_rows(str(home / "0" / "[12].png"), None, image_shape=(5, 6, 1)).keys.to_list() == [
        "1.png",
        "2.png",
    ]
    (home / "0" / "1.png").write_text("none")
    with pytest.raises(UserError, match=r"1\.png has no images") as caught:
        read_rows(home / "0" / "1.png", None, image_shape=(5, 6, 1))
    assert caught.value.hint == "1 row with a file that is not an image (0/1.png)"


def test_images_by_a_glob_have_the_keys_of_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = write_images(tmp_path / "eyes")
    every = read_rows(home, None, image_shape=(5, 6, 1))
    assert every.keys.n_unique() == 30
    monkeypatch.chdir(tmp_path)
    for glob in (f"{home}/*/*.png", "eyes/*/*.png", "./eyes/**/*.png", "eyes/[0-9]/?.png"):
        result = read_rows(glob, None, image_shape=(5, 6, 1))
        assert result.keys.to_list() == every.keys.to_list()
        assert result.rows.images is not None
        assert every.rows.images is not None
        assert torch.equal(result.rows.images, every.rows.images)
    monkeypatch.chdir(home)
    assert read_rows("*/*.png", None, image_shape=(5, 6, 1)).keys.equals(every.keys)
    (home / "0").rename(tmp_path / "0")
    (home / "1").rename(tmp_path / "1")  # one folder remains, with the same keys
    left = read_rows(f"{home}/*/*.png", None, image_shape=(5, 6, 1)).keys
    assert left.to_list() == [f"2/{number}.png" for number in range(10)]


@pytest.mark.parametrize("kind", ["tga", "PCX", "jp2"])
def test_every_format_of_pillow_is_found_by_a_glob(kind: str, tmp_path: Path) -> None:
    home = write_images(tmp_path / "eyes", kind=kind)
    every = read_rows(home, None, image_shape=(5, 6, 3))
    result = read_rows(f"{home}/*/*.{kind}", None, image_shape=(5, 6, 3))
    assert result.keys.to_list() == every.keys.to_list()
    assert torch.equal(result.rows.images, every.rows.images)  # type: ignore[arg-type]


def test_other_files_of_a_glob_are_bad_rows_as_in_the_folder(tmp_path: Path) -> None:
    home = write_images(tmp_path / "eyes")
    (home / "0" / "Thumbs.db").write_bytes(b"\0")
    (home / "0" / "notes.txt").write_text("a,b\n1,2\n")
    (home / "1" / ".DS_Store").write_bytes(b"\0")
    whole = prepare(home, format="features", image_size=4)
    assert whole.summary["dropped"][0]["first"] == ["eyes/0/notes.txt"]
    for glob in (f"{home}/*/*", f"{home}/**"):
        result = prepare(glob, format="features", image_size=4)
        assert result.summary["dropped"] == whole.summary["dropped"]
        assert result.fingerprint == whole.fingerprint


def test_a_bad_image_of_a_glob_is_a_bad_row(tmp_path: Path, reading: Reading) -> None:
    home = write_images(tmp_path / "eyes")
    (home / "0" / "1.png").write_text("none")
    result = read_rows(f"{home}/*/*.png", None, image_shape=(5, 6, 1), reading=reading)
    assert len(result.rows) == 29
    assert reading.bad.places == {"a file that is not an image": ["eyes/0/1.png"]}
