"""Rows with ordered grades: from tables, arrays, images and KEEL files to prepared data."""

import re
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankfold import fit
from rankfold.data import folder, integrity
from rankfold.data.build import graded
from rankfold.data.build.graded import SplitOptions, assign
from rankfold.data.build.grades import GradedRows, as_words
from rankfold.data.build.new_rows import read_rows
from rankfold.data.prepare import prepare
from rankfold.data.read.graded_rows import RawRows
from rankfold.data.read.reading import LINE, Reading
from rankfold.errors import UserError
from rankfold.types import Columns, Dataset, Graded, SplitName

GRADES = ["low", "middle", "high"]
SPLITS: tuple[SplitName, ...] = ("train", "validation", "test")
FEATURES: dict[str, Any] = {"format": "features", "grade_column": "severity", "grades": GRADES}


@pytest.fixture
def patients() -> pl.DataFrame:
    """30 rows, 10 of each grade: an age that tells the row, a sex, a missing value of either."""
    n = range(30)
    return pl.DataFrame(
        {
            "id": [f"p{i}" for i in n],
            "age": [None if i == 7 else 20.5 + i for i in n],
            "sex": [None if i == 8 else "mf"[i % 2] for i in n],
            "severity": [GRADES[i % 3] for i in n],
        }
    )


def prepared(table: Any, **options: Any) -> Dataset:
    return prepare(table, query_column="id", **(FEATURES | options))


def ages(data: Dataset) -> dict[str, list[float]]:
    assert data.columns is not None
    place = data.columns.numbers.index("age")
    return {name: data.graded(name).numbers[:, place].nan_to_num(27.5).tolist() for name in SPLITS}


# ---------------------------------------------------------------------------------- tables


def test_numbers_and_categories_are_told_apart(patients: pl.DataFrame) -> None:
    data = prepared(patients)
    assert data.kind == "graded"
    assert data.columns == Columns(("age",), {"sex": ("f", "m")})
    assert (len(data.queries), len(data.candidates)) == (30, 3)
    assert data.candidates.texts is not None
    assert data.candidates.texts.to_list() == GRADES
    for name in SPLITS:
        part = data.graded(name)
        for row in range(len(part)):
            age = part.numbers[row, 0].item()
            i = 7 if np.isnan(age) else round(age - 20.5)
            assert part.grades[row] == i % 3
            assert part.categories[row, 0] == (-1 if i == 8 else 1 - i % 2)


def test_the_age_that_is_missing_stays_so(patients: pl.DataFrame) -> None:
    data = prepared(patients)
    missing = [int(data.graded(name).numbers.isnan().sum()) for name in SPLITS]
    assert sum(missing) == 1


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet", "arrow", "csv.gz"])
def test_every_format_gives_the_same(kind: str, patients: pl.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / f"patients.{kind}"
    match kind:
        case "csv":
            patients.write_csv(path)
        case "csv.gz":
            import gzip

            path.write_bytes(gzip.compress(patients.write_csv().encode()))
        case "tsv":
            patients.write_csv(path, separator="\t")
        case "jsonl":
            patients.write_ndjson(path)
        case "parquet":
            patients.write_parquet(path)
        case "arrow":
            patients.write_ipc(path)
    assert prepared(path).fingerprint == prepared(patients).fingerprint


def test_tables_in_memory_give_the_same(patients: pl.DataFrame) -> None:
    expected = prepared(patients).fingerprint
    assert prepared(patients.to_pandas()).fingerprint == expected
    assert prepared(patients.to_arrow()).fingerprint == expected
    assert prepared(patients.lazy()).fingerprint == expected


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "arrow", "dat", "memory"])
def test_a_column_may_have_the_name_of_anything(kind: str, tmp_path: Path) -> None:
    """Lines are numbered in a column of their own, which takes no name from the input."""
    table = pl.DataFrame(
        {"__line__": [i + 0.5 for i in range(30)], "y": [i % 2 for i in range(30)]}
    )
    path = tmp_path / f"t.{kind}"
    match kind:
        case "csv":
            table.write_csv(path)
        case "jsonl":
            table.write_ndjson(path)
        case "parquet":
            table.write_parquet(path)
        case "arrow":
            table.write_ipc(path)
        case "dat":
            head = "@relation r\n@attribute __line__ real\n@attribute y {0, 1}\n@data\n"
            path.write_text(head + table.write_csv(include_header=False))
    data = prepare(
        path if path.exists() else table, format="features", grade_column="y", split=(1, 0, 0)
    )
    assert data.columns == Columns(("__line__",), {})
    assert data.graded("train").numbers[:, 0].tolist() == table["__line__"].to_list()


def test_several_files_are_one_table(patients: pl.DataFrame, tmp_path: Path) -> None:
    patients[:11].write_csv(tmp_path / "a.csv")
    patients[11:].write_parquet(tmp_path / "b.parquet")
    data = prepare(tmp_path / "a.csv", tmp_path / "b.parquet", query_column="id", **FEATURES)
    assert data.fingerprint == prepared(patients).fingerprint


def test_levels_are_those_of_train_alone(patients: pl.DataFrame) -> None:
    late = patients.with_columns(sex=pl.lit("x"))
    data = prepare(train=patients, test=late, validation_share=0.0, query_column="id", **FEATURES)
    assert data.columns is not None
    assert data.columns.levels == {"sex": ("f", "m")}
    assert data.graded("test").categories.unique().tolist() == [-1]
    assert data.summary["unknown"] == {"test": {"sex": 30}}
    assert data.validation is None


def test_numbers_that_are_not_finite_are_missing(patients: pl.DataFrame) -> None:
    dose = [float("nan"), float("inf"), -float("inf"), *map(float, range(27))]
    data = prepared(patients.with_columns(dose=pl.Series(dose)), split=(1.0, 0.0, 0.0))
    assert data.graded("train").numbers[:, 1].isnan().tolist() == [True] * 3 + [False] * 27


def test_columns_that_tell_nothing_are_left_out(patients: pl.DataFrame) -> None:
    rows = pl.concat([patients] * 80).with_columns(
        same=pl.lit(1.5),
        empty=pl.lit(None, pl.String),
        name=pl.int_range(2400).cast(pl.String) + "x",
        days=pl.date_range(pl.date(2000, 1, 1), pl.date(2010, 1, 1), eager=True)[:2400],
        code=pl.int_range(2400),
    )
    data = prepared(rows, drop_columns=["code"])
    assert data.columns == Columns(("age",), {"sex": ("f", "m")})
    why = {entry["column"]: entry["why"] for entry in data.summary["left_out"]}
    assert why.keys() == {"same", "empty", "name", "days", "code"}
    assert "same value" in why["same"]
    assert "no value" in why["empty"]
    assert "distinct values" in why["name"]
    assert "Date" in why["days"]
    assert why["code"] == "named by --drop-columns"


def test_numbers_that_are_too_large_are_told(patients: pl.DataFrame) -> None:
    data = prepared(patients.with_columns(far=pl.Series([None, *[1e300] * 29])))
    (entry,) = data.summary["left_out"]
    assert entry == {
        "column": "far",
        "why": "its numbers are too large: the largest Float32 is 3.4e38",
    }


@pytest.mark.parametrize("kind", [pl.String(), pl.Categorical(), pl.Enum(["1", "2", "3"])])
def test_codes_of_a_type_of_text_are_categories(
    kind: pl.DataType, patients: pl.DataFrame, tmp_path: Path
) -> None:
    codes = pl.Series(["2", "1", "3"] * 10, dtype=kind)
    table = patients.with_columns(code=codes)
    table.write_parquet(tmp_path / "t.parquet")
    table.write_csv(tmp_path / "t.csv")
    for source in (table, table.to_pandas(), table.to_arrow(), tmp_path / "t.parquet"):
        data = prepared(source, split=(1.0, 0.0, 0.0))
        assert data.columns == Columns(("age",), {"code": ("1", "2", "3"), "sex": ("f", "m")})
        assert data.graded("train").categories[:3, 0].tolist() == [1, 0, 2]
    whole = table.with_columns(code=codes.cast(pl.String).cast(pl.Int64))
    for new in (table, tmp_path / "t.csv", whole, whole.with_columns(pl.col("code").cast(float))):
        rows = read_rows(new, data.columns).rows
        assert torch.equal(rows.categories, data.graded("train").categories)
    with pytest.raises(UserError, match=r"'code' of the table holds Float64, .* with text"):
        read_rows(whole.with_columns(code=pl.lit(1.5)), data.columns)
    assert prepared(tmp_path / "t.csv").summary["numbers"] == 2  # a CSV has no types
    both = prepare(train=tmp_path / "t.csv", test=table, query_column="id", **FEATURES)
    assert both.summary["numbers"] == 1


def test_a_stray_word_among_numbers_is_told(tmp_path: Path) -> None:
    lines = [f"{i / 7:.3f},{'x' if i % 5 == 0 else i % 7},{i % 2}" for i in range(3000)]
    lines[40] = f"n. d.,{lines[40].partition(',')[2]}"
    for n, place in ((600, "doubtful"), (3000, "left_out")):  # 3,000 levels are too many
        (tmp_path / "t.csv").write_text("\n".join(["dose,mixed,y", *lines[:n]]))
        data = prepare(tmp_path / "t.csv", format="features", grade_column="y")
        why = {entry["column"]: entry["why"] for entry in data.summary[place]}
        assert why["dose"].endswith("'n. d.' (t.csv:42) is not a number")
        assert "no number" not in why.get("mixed", "")
        assert place == "left_out" or why.keys() == {"dose"}


def test_decimal_commas_are_told(tmp_path: Path) -> None:
    lines = [f"{i // 7},{i % 7};{i % 2}" for i in range(300)]
    (tmp_path / "t.csv").write_text("\n".join(["dose;y", *lines]))
    data = prepare(tmp_path / "t.csv", format="features", grade_column="y")
    why = "'0,0' (t.csv:2) is not a number: write decimals with a point"
    assert data.summary["doubtful"] == [{"column": "dose", "why": why}]


def test_a_value_that_is_there_or_missing_tells_something(patients: pl.DataFrame) -> None:
    rows = patients.with_columns(seen=pl.when(pl.int_range(30) % 2 == 0).then(1.0))
    data = prepared(rows, split=(1.0, 0.0, 0.0))
    assert data.columns is not None
    assert data.columns.numbers == ("age", "seen")


# ---------------------------------------------------------------------------------- grades


@pytest.mark.parametrize("values", [[2, 10, 1], ["2", "10", "1"], [2.0, 10.0, 1.0]], ids=str)
def test_numbers_ascend(values: list[Any]) -> None:
    data = prepare(
        pl.DataFrame({"x": range(30), "y": values * 10}), format="features", grade_column="y"
    )
    assert data.summary["grade_names"] == ["1", "2", "10"]
    train = data.graded("train")
    expected = [[1, 2, 0][int(x) % 3] for x in train.numbers[:, 0]]
    assert train.grades.tolist() == expected


def test_numbers_may_be_given_an_order_in_any_spelling() -> None:
    table = pl.DataFrame({"x": range(30), "y": ["1.0", "2", "3"] * 10})
    data = prepare(table, format="features", grade_column="y", grades=[3, 2, 1])
    assert data.summary["grade_names"] == ["3", "2", "1"]
    assert data.graded("train").grades.tolist() == [
        2 - int(x) % 3 for x in data.graded("train").numbers[:, 0]
    ]


def test_an_enum_has_an_order(patients: pl.DataFrame) -> None:
    rows = patients.with_columns(pl.col("severity").cast(pl.Enum(["none", *GRADES])))
    assert prepared(rows, grades=None).summary["grade_names"] == GRADES


def test_categories_of_pandas_have_no_order(patients: pl.DataFrame) -> None:
    rows = patients.to_pandas()
    rows["severity"] = pd.Categorical(rows["severity"])
    with pytest.raises(UserError, match="no order"):
        prepared(rows, grades=None)


def test_rows_without_a_grade_are_counted(patients: pl.DataFrame, tmp_path: Path) -> None:
    rows = patients.with_columns(
        severity=pl.when(pl.col("id") == "p3")
        .then(pl.lit("odd"))
        .when(pl.col("id") == "p4")
        .then(None)
        .otherwise(pl.col("severity"))
    )
    rows.write_csv(tmp_path / "rows.csv")
    data = prepared(tmp_path / "rows.csv")
    assert len(data.queries) == 28
    assert data.summary["rows"] == 30
    assert data.summary["dropped"] == [
        {"why": "a missing grade", "rows": 1, "first": ["rows.csv:6"]},
        {"why": "a grade that is not among those given", "rows": 1, "first": ["rows.csv:5"]},
    ]
    with pytest.raises(UserError, match=r"rows.csv:6"):
        prepared(tmp_path / "rows.csv", strict=True)


# ---------------------------------------------------------------------------------- splits


def graded_rows(counts: list[int]) -> GradedRows:
    grades = np.repeat(np.arange(len(counts)), counts)
    grades = np.random.default_rng(0).permutation(grades)
    table = pl.DataFrame({LINE: list(map(str, range(len(grades))))})
    names = tuple(map(str, range(len(counts))))
    return GradedRows(RawRows("rows", table, None), grades, names)


@given(
    st.lists(st.integers(1, 80), min_size=2, max_size=5),
    st.tuples(st.floats(0, 0.4), st.floats(0, 0.4)),
    st.integers(0, 100),
)
def test_shares_hold_for_each_grade(
    counts: list[int], shares: tuple[float, float], seed: int
) -> None:
    rows = graded_rows(counts)
    parts = (1 - sum(shares), *shares)
    splits = assign(rows, SplitOptions(parts, 0.1, seed))
    assert splits.shape == (sum(counts),)  # one split each: disjoint, and all rows are used
    for grade, n in enumerate(counts):
        found = np.bincount(splits[rows.grades == grade], minlength=3)
        assert found.sum() == n
        assert found[0] >= 1
        for number, least in ((1, 5), (2, 3)):
            if n >= least:
                assert abs(found[number] - parts[number] * n) <= 1
            else:
                assert found[number] == 0
    again = assign(rows, SplitOptions(parts, 0.1, seed))
    assert (again == splits).all()


def test_another_seed_gives_another_split(patients: pl.DataFrame) -> None:
    one, same, other = (ages(prepared(patients, seed=seed)) for seed in (0, 0, 1))
    assert one == same != other


def test_every_row_is_in_one_split(patients: pl.DataFrame) -> None:
    data = prepared(patients, split="0.6,0.2,0.2")
    found = ages(data)
    assert [len(found[name]) for name in SPLITS] == [18, 6, 6]
    assert sorted(chain.from_iterable(found.values())) == [20.5 + i for i in range(30)]
    assert all(
        data.summary[name]["grades"] == [n] * 3 for name, n in zip(SPLITS, (6, 2, 2), strict=True)
    )


def test_given_files_stay_apart_and_validation_is_carved(
    patients: pl.DataFrame, tmp_path: Path
) -> None:
    patients[:24].write_csv(tmp_path / "a.csv")
    patients[24:].write_csv(tmp_path / "b.csv")
    files = {"train": tmp_path / "a.csv", "test": tmp_path / "b.csv"}
    data = prepare(**files, query_column="id", validation_share=0.25, **FEATURES)
    found = ages(data)
    assert found["test"] == [20.5 + i for i in range(24, 30)]
    assert data.summary["validation"]["grades"] == [2, 2, 2]
    assert sorted(found["train"] + found["validation"]) == [20.5 + i for i in range(24)]


# ---------------------------------------------------------------------------------- folders


def test_what_is_saved_is_loaded(patients: pl.DataFrame, tmp_path: Path) -> None:
    data = prepared(patients)
    back = prepared(patients, out=tmp_path / "data")
    assert back.columns == data.columns
    assert (back.summary, back.fingerprint) == (data.summary, data.fingerprint)
    assert back.candidates.texts is not None
    assert back.candidates.texts.to_list() == GRADES
    for name in SPLITS:
        ours, theirs = folder.to_tensors(data.graded(name)), folder.to_tensors(back.graded(name))
        assert ours.keys() == theirs.keys()
        for tensor in ours:
            torch.testing.assert_close(ours[tensor], theirs[tensor], equal_nan=True, rtol=0, atol=0)


def test_fingerprints_tell_data_apart(patients: pl.DataFrame) -> None:
    plain = prepared(patients).fingerprint
    assert len(plain) == 64
    for other in (
        prepared(patients.with_columns(pl.col("age") + 1)),
        prepared(patients, grades=["middle", "low", "high"]),
        prepared(patients, seed=1),
        prepared(patients.rename({"age": "years"})),
    ):
        assert other.fingerprint != plain


@pytest.mark.parametrize(
    "damage",
    [
        lambda rows: replace(rows, grades=rows.grades + 3),
        lambda rows: replace(rows, grades=rows.grades - 2),
        lambda rows: replace(rows, categories=rows.categories + 2),
        lambda rows: replace(rows, categories=rows.categories - 2),
    ],
)
def test_damaged_rows_are_found(damage: Any, patients: pl.DataFrame) -> None:
    data = prepared(patients)
    integrity.check_content(data)
    with pytest.raises(UserError, match="the test rows are damaged"):
        integrity.check_content(replace(data, test=damage(data.test)))


def test_columns_that_do_not_fit_are_refused(patients: pl.DataFrame, tmp_path: Path) -> None:
    data = prepared(patients)
    assert data.columns is not None
    more = Columns((*data.columns.numbers, "weight"), data.columns.levels)
    folder.save(replace(data, columns=more), tmp_path / "data")
    with pytest.raises(UserError):
        folder.load(tmp_path / "data")


# ---------------------------------------------------------------------------------- arrays


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


# ---------------------------------------------------------------------------------- images


def write_images(home: Path, mode: str = "RGB", kind: str = "png") -> Path:
    """Ten images of each grade; the blue of an image, or its grey, tells its grade and number."""
    from PIL import Image

    for grade in range(3):
        (home / str(grade)).mkdir(parents=True)
        for number in range(10):
            value = 80 * grade + number
            colour = (0, 0, value) if mode == "RGB" else value
            Image.new(mode, (9, 7), colour).save(home / str(grade) / f"{number}.{kind}")
    return home


def test_a_folder_of_images(tmp_path: Path) -> None:
    home = write_images(tmp_path / "eyes")
    (home / "0" / "notes.txt").write_text("not an image")
    (home / "0" / ".DS_Store").write_text("hidden")
    data = prepare(home, format="features", image_size=4)
    assert data.summary["images"] == [4, 4, 3]
    assert data.summary["grade_names"] == ["0", "1", "2"]
    assert data.summary["dropped"] == [
        {"why": "a file that is not an image", "rows": 1, "first": ["eyes/0/notes.txt"]}
    ]
    seen = []
    for name in SPLITS:
        part = data.graded(name)
        assert part.images is not None
        blue = part.images[:, 0, 0, 2].long()
        assert (part.images[..., 2] == blue[:, None, None]).all()
        assert part.images[..., :2].sum() == 0
        assert (blue // 80).tolist() == part.grades.tolist()
        seen += blue.tolist()
    assert sorted(seen) == [80 * g + n for g in range(3) for n in range(10)]


def test_images_by_paths_are_those_of_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Grades are the names of folders, and one image in colour makes all of them such."""
    from PIL import Image

    home = write_images(tmp_path / "eyes", "L")
    Image.new("RGB", (9, 7), (0, 0, 3)).save(home / "0" / "3.png")
    whole = prepare(home, format="features", image_size=4)
    monkeypatch.chdir(tmp_path)
    files = sorted(home.rglob("*.png"))
    mixed = [
        file.relative_to(tmp_path) if number % 2 else file for number, file in enumerate(files)
    ]
    globs = [f"eyes/{grade}/*.png" for grade in range(3)]
    for inputs in (files, mixed, ["eyes/*/*.png"], globs):
        found = prepare(*inputs, format="features", image_size=4)
        assert found.fingerprint == whole.fingerprint
    parts = prepare(train="eyes/*/[0-7].png", test=files, format="features", image_size=4)
    assert parts.summary["test"]["grades"] == [10, 10, 10]


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("RGB", 3)])
def test_grey_images_have_one_channel(mode: str, channels: int, tmp_path: Path) -> None:
    data = prepare(write_images(tmp_path / "eyes", mode), format="features")
    assert data.summary["images"] == [64, 64, channels]


@pytest.mark.parametrize("kind", ["png", "pgm", "tif"])
def test_images_of_16_bits_keep_their_order(kind: str, tmp_path: Path) -> None:
    from PIL import Image

    for grade in range(2):
        (tmp_path / "eyes" / str(grade)).mkdir(parents=True)
        for number in range(5):
            deep = np.full((4, 4), 30_000 * grade + 1000, dtype=np.uint16)
            Image.fromarray(deep).save(tmp_path / "eyes" / str(grade) / f"{number}.{kind}")
    train = prepare(tmp_path / "eyes", format="features").graded("train")
    assert train.images is not None
    assert train.images[:, 0, 0, 0].tolist() == [[3, 121][g] for g in train.grades]


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_images_of_32_bits_are_left_out_and_not_clipped(dtype: type, tmp_path: Path) -> None:
    from PIL import Image

    home = write_images(tmp_path / "eyes", "L")
    Image.fromarray(np.full((4, 4), 1000, dtype=dtype)).save(home / "0" / "deep.tif")
    data = prepare(home, format="features")
    [gone] = data.summary["dropped"]
    assert gone["why"].startswith("an image of 32 bits per pixel")
    assert gone["first"] == ["eyes/0/deep.tif"]
    with pytest.raises(UserError, match="32 bits per pixel: convert it"):
        prepare(home, format="features", strict=True)


def test_without_pillow_there_is_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = write_images(tmp_path / "eyes")
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(UserError, match="Pillow") as caught:
        prepare(home, format="features")
    assert "rankfold[images]" in str(caught.value.hint)


# ---------------------------------------------------------------------------------- new rows


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


def test_new_rows_are_what_prepare_made_of_them(patients: pl.DataFrame, tmp_path: Path) -> None:
    data = prepared(patients, split=(1.0, 0.0, 0.0))
    patients.drop("severity").write_csv(tmp_path / "new.csv")
    rows = read_rows(str(tmp_path / "new.csv"), data.columns).rows
    train = data.graded("train")
    torch.testing.assert_close(rows.numbers, train.numbers, equal_nan=True)
    assert torch.equal(rows.categories, train.categories)


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
def test_a_table_in_memory_is_as_its_file(
    values: pl.Series, levels: tuple[str, ...], written: list[str], tmp_path: Path
) -> None:
    """Where a file has other words beside truth values and whole numbers."""
    columns = Columns(("n",), {"word": levels})
    (tmp_path / "new.csv").write_text("n,word\n" + "".join(f"1,{word}\n" for word in written))
    table = pl.DataFrame({"n": [1, 1, 1], "word": values})
    for source in (table, table.to_pandas(), tmp_path / "new.csv"):
        assert read_rows(source, columns).rows.categories[:, 0].tolist() == [1, 0, -1]


def test_columns_that_a_model_needs_are_named(patients: pl.DataFrame) -> None:
    with pytest.raises(UserError, match="no columns 'age', 'sex', which the model"):
        read_rows(patients.drop("age", "sex"), Columns(("age",), {"sex": ("m",)}))


@pytest.mark.parametrize(
    ("ages", "found", "hint"),
    [
        (["1", "NA", "n. d.", "4"], r"'n\. d\.' \(new\.csv:4\)", "correct this row, or leave"),
        (["1", "x", "y", "z"], r"'x' \(new\.csv:3\)", "correct it and 2 similar rows, or leave"),
        (["x", "y"], r"'x' \(new\.csv:2\)", "the types that the model was fitted with"),
    ],
)
def test_a_word_among_the_numbers_of_new_rows_is_told_with_its_place(
    ages: list[str], found: str, hint: str, tmp_path: Path
) -> None:
    (tmp_path / "new.csv").write_text("\n".join(["sex,age", *(f"m,{age}" for age in ages)]))
    with pytest.raises(UserError, match=f"column 'age' of new.csv holds {found}, but") as caught:
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
    """The age is the number of the row; rows that are left out count, blank lines do not."""
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
        found = read_rows(glob, None, image_shape=(5, 6, 1))
        assert found.keys.to_list() == every.keys.to_list()
        assert found.rows.images is not None
        assert every.rows.images is not None
        assert torch.equal(found.rows.images, every.rows.images)
    monkeypatch.chdir(home)
    assert read_rows("*/*.png", None, image_shape=(5, 6, 1)).keys.equals(every.keys)
    (home / "0").rename(tmp_path / "0")
    (home / "1").rename(tmp_path / "1")  # one folder is left, and the keys are as they were
    left = read_rows(f"{home}/*/*.png", None, image_shape=(5, 6, 1)).keys
    assert left.to_list() == [f"2/{number}.png" for number in range(10)]


@pytest.mark.parametrize("kind", ["tga", "PCX", "jp2"])
def test_every_format_of_pillow_is_found_by_a_glob(kind: str, tmp_path: Path) -> None:
    home = write_images(tmp_path / "eyes", kind=kind)
    every = read_rows(home, None, image_shape=(5, 6, 3))
    found = read_rows(f"{home}/*/*.{kind}", None, image_shape=(5, 6, 3))
    assert found.keys.to_list() == every.keys.to_list()
    assert torch.equal(found.rows.images, every.rows.images)  # type: ignore[arg-type]


def test_other_files_of_a_glob_are_what_they_are_in_the_folder(tmp_path: Path) -> None:
    home = write_images(tmp_path / "eyes")
    (home / "0" / "Thumbs.db").write_bytes(b"\0")
    (home / "0" / "notes.txt").write_text("a,b\n1,2\n")
    (home / "1" / ".DS_Store").write_bytes(b"\0")
    whole = prepare(home, format="features", image_size=4)
    assert whole.summary["dropped"][0]["first"] == ["eyes/0/notes.txt"]
    for glob in (f"{home}/*/*", f"{home}/**"):
        found = prepare(glob, format="features", image_size=4)
        assert found.summary["dropped"] == whole.summary["dropped"]
        assert found.fingerprint == whole.fingerprint


def test_a_bad_image_of_a_glob_is_a_bad_row(tmp_path: Path, reading: Reading) -> None:
    home = write_images(tmp_path / "eyes")
    (home / "0" / "1.png").write_text("none")
    found = read_rows(f"{home}/*/*.png", None, image_shape=(5, 6, 1), reading=reading)
    assert len(found.rows) == 29
    assert reading.bad.places == {"a file that is not an image": ["eyes/0/1.png"]}


# ---------------------------------------------------------------------------------- bad input


ROWS = pl.DataFrame({"x": range(9), "y": ["a", "b", "c"] * 3})


@pytest.mark.parametrize(
    ("table", "options", "message", "hint"),
    [
        (ROWS, {"grade_column": "z"}, "no column 'z'", "it has x, y; use --grade-column"),
        (ROWS, {}, "cannot tell where the grades", "--grade-column"),
        (
            ROWS,
            {"grade_column": "y"},
            "text, which has no order of its own: a,b,c",
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
        (
            ROWS,
            {"grade_column": "y", "grades": "a,b,c", "drop_columns": "q"},
            "no column 'q' to drop",
            "x",
        ),
        (
            ROWS,
            {"grade_column": "y", "grades": "a,b,c", "drop_columns": "x"},
            "no column of features",
            "x: named by",
        ),
        (
            ROWS,
            {"grade_column": "y", "grades": "a,b,c", "split": "last"},
            "cannot be split by 'last'",
            "0.8",
        ),
        (
            ROWS,
            {"grade_column": "y", "grades": "a,b,c", "split": "0.8,0.3,0.1"},
            "not three shares that add up to 1",
            "write --split 0.8,0.1,0.1: shares of the rows of each grade",
        ),
        (
            ROWS,
            {"grade_column": "y", "grades": "a,b,c", "kcore": 3},
            "take no --kcore",
            "leave it out",
        ),
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
def test_what_cannot_be_prepared_is_told(
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
def test_types_that_are_no_grades_are_told(values: pl.Series, kind: str) -> None:
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
def test_arrays_that_are_no_grades_are_told(kind: str, tmp_path: Path) -> None:
    rows = {"X": np.arange(30.0)[:, None], "y": (np.arange(30) % 3).astype(kind)}
    np.savez(tmp_path / "rows.npz", **rows)
    words = {"timedelta64[ms]": "Duration", "V8": "void"}.get(kind, kind)
    for source in (rows, tmp_path / "rows.npz"):
        with pytest.raises(UserError, match=re.escape(words)) as caught:
            prepare(source, format="features")
        assert "numbers" in caught.value.hint


def test_types_that_do_not_go_together_are_told() -> None:
    plain = pl.DataFrame({"x": range(9), "y": [0, 1, 2] * 3})
    for other in (plain.with_columns(pl.concat_list(name)) for name in ("x", "y")):
        with pytest.raises(UserError, match=r"incompatible types.*List") as caught:
            prepare(train=plain, test=other, format="features", grade_column="y")
        assert "numbers or text" in caught.value.hint


def test_an_image_of_one_pixel_can_be_fitted() -> None:
    """So that what has a pixel is not refused."""
    images = np.arange(40, dtype=np.uint8).reshape(40, 1, 1)
    data = prepare({"images": images, "y": np.arange(40) // 20}, format="features")
    assert data.summary["images"] == [1, 1, 1]
    scores = fit("ce", data, epochs=1).score(data.graded("test"))
    assert bool(scores.isfinite().all())


def test_a_grade_without_rows_to_learn_from_is_told() -> None:
    with pytest.raises(UserError, match="no row of the grade 'c' is in train"):
        prepare(
            train=ROWS.filter(pl.col("y") != "c"),
            test=ROWS,
            format="features",
            grade_column="y",
            grades="a,b,c",
        )


def test_files_with_other_columns_are_told(tmp_path: Path) -> None:
    ROWS.write_csv(tmp_path / "a.csv")
    ROWS.rename({"x": "z"}).write_csv(tmp_path / "b.csv")
    with pytest.raises(UserError, match=r"b.csv has no column 'x', a.csv has one"):
        prepare(tmp_path / "*.csv", format="features", grade_column="y", grades="a,b,c")


def test_a_file_of_objects_or_of_nothing_is_told(tmp_path: Path) -> None:
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


def test_a_folder_without_images_is_told(tmp_path: Path) -> None:
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


def test_sources_refuse_what_they_know_themselves() -> None:
    for options in ({"split": "0.5,0.2,0.3"}, {"grades": "0,1"}):
        with pytest.raises(UserError, match="official splits and grades"):
            prepare(source="retinamnist", **options)
    with pytest.raises(UserError, match="take no --grade-column"):
        prepare(source="retinamnist", grade_column="y")


def test_hashes_tell_rows_apart_whatever_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = torch.tensor([[0.0, torch.nan], [-0.0, -torch.nan], [0.0, 1.0], [0.0, torch.nan]])
    grades, pixels = torch.tensor([0, 0, 0, 1]), torch.zeros((4, 2, 2, 1), dtype=torch.uint8)
    rows = Graded(numbers, torch.zeros((4, 0), dtype=torch.int32), pixels, grades)
    found = graded.hashes(rows)
    assert found[0] == found[1]
    assert len(found.unique()) == 3
    monkeypatch.setattr(graded, "HASH_BLOCK_BYTES", 1)
    assert torch.equal(graded.hashes(rows), found)
    pixels[1, 1, 1, 0] = 1
    assert len(graded.hashes(rows).unique()) == 4
    assert len(graded.hashes(rows.part(0, 0))) == 0


def test_graded_parts_are_graded(patients: pl.DataFrame) -> None:
    data = prepared(patients)
    assert isinstance(data.train, Graded)
    assert data.summary["numbers"] == 1
    assert data.summary["categories"] == 1
    assert data.summary["images"] is None


@pytest.mark.parametrize("kind", ["as they are", "text"])
@pytest.mark.parametrize(
    "values",
    [
        pl.Series([20240103, 20240104, 20240105]),
        pl.Series([16777216, 16777217, 16777218]),
        pl.Series([2**63, 2**63 + 1, 2**63 + 2], dtype=pl.UInt64),
        pl.Series([-(2**62) - 1, -(2**62), 2**53, 2**53 + 1]),
        pl.Series([2.5, 3.4e38, 3.5e38, 1e39]),
    ],
    ids=["days", "2^24", "2^63", "2^53 and -2^62", "beyond float32"],
)
def test_large_and_close_grades_ascend(values: pl.Series, kind: str) -> None:
    n = len(values)
    for shift in range(n):
        column = values.gather([(i + shift) % n for i in range(n - 1, -1, -1)] * 20)
        table = pl.DataFrame(
            {"x": range(20 * n), "y": column.cast(pl.String) if kind == "text" else column}
        )
        names = prepare(table, format="features", grade_column="y").summary["grade_names"]
        assert list(map(float, names)) == sorted(map(float, values))
        if values.dtype.is_integer():
            assert list(map(int, names)) == values.to_list()
        new = read_rows(table, Columns(("x",), {}), grade_column="y", grades=names).rows
        assert new.grades.tolist() == [names.index(name) for name in as_words(column, None)]


def test_large_grades_may_be_given_an_order() -> None:
    table = pl.DataFrame({"x": range(30), "y": [2.0, 1e39, 2**63 + 2**20] * 10})
    data = prepare(table, format="features", grade_column="y", grades=["1e39", 2**63 + 2**20, "2"])
    assert data.summary["grade_names"] == ["1e+39", "9223372036855824384", "2"]


def test_whole_numbers_with_zeros_behind_a_point_are_the_same_grades() -> None:
    words = ["9007199254740993", "9007199254740993.0", "9007199254740992.", "2"]
    table = pl.DataFrame({"x": range(40), "y": words * 10})
    names = prepare(table, format="features", grade_column="y").summary["grade_names"]
    assert names == ["2", "9007199254740992", "9007199254740993"]


def test_missing_grades_among_arrays_are_left_out() -> None:
    arrays = {"X": np.arange(40.0)[:, None], "y": [1, None, 2, 3] * 10}
    found = prepare(arrays, format="features")
    assert sum(found.summary[name]["rows"] for name in ("train", "validation", "test")) == 30
