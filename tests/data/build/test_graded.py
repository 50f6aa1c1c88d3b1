"""Rows with ordered grades: from tables, arrays and images to prepared data."""

import re
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from graded_samples import FEATURES, GRADES, SPLITS, ages, prepared, write_images
from hypothesis import given
from hypothesis import strategies as st

from rankfold import fit
from rankfold.data import folder
from rankfold.data.build import graded
from rankfold.data.build.graded import SplitOptions, assign
from rankfold.data.build.grades import GradedRows, as_words
from rankfold.data.build.new_rows import read_rows
from rankfold.data.prepare import prepare
from rankfold.data.read.graded_rows import RawRows
from rankfold.data.read.reading import LINE
from rankfold.errors import UserError
from rankfold.types import Columns, Graded

# ---------------------------------------------------------------------------------- tables


def test_numbers_and_categories_are_distinguished(patients: pl.DataFrame) -> None:
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


def test_a_missing_age_stays_missing(patients: pl.DataFrame) -> None:
    data = prepared(patients)
    missing = [int(data.graded(name).numbers.isnan().sum()) for name in SPLITS]
    assert sum(missing) == 1


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet", "arrow", "csv.gz"])
def test_every_format_gives_the_same_rows(
    kind: str, patients: pl.DataFrame, tmp_path: Path
) -> None:
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
def test_a_column_may_have_any_name(kind: str, tmp_path: Path) -> None:
    """The column of line numbers has a name that no input column has."""
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


def test_levels_come_from_train_only(patients: pl.DataFrame) -> None:
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


def test_uninformative_columns_are_dropped(patients: pl.DataFrame) -> None:
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


def test_numbers_that_are_too_large_are_reported(patients: pl.DataFrame) -> None:
    data = prepared(patients.with_columns(far=pl.Series([None, *[1e300] * 29])))
    (entry,) = data.summary["left_out"]
    assert entry == {
        "column": "far",
        "why": "its numbers are too large: the largest Float32 is 3.4e38",
    }


@pytest.mark.parametrize("kind", [pl.String(), pl.Categorical(), pl.Enum(["1", "2", "3"])])
def test_codes_stored_as_text_are_categories(
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


def test_stray_word_among_numbers_is_reported(tmp_path: Path) -> None:
    lines = [f"{i / 7:.3f},{'x' if i % 5 == 0 else i % 7},{i % 2}" for i in range(3000)]
    lines[40] = f"n. d.,{lines[40].partition(',')[2]}"
    for n, place in ((600, "doubtful"), (3000, "left_out")):  # 3,000 levels are too many
        (tmp_path / "t.csv").write_text("\n".join(["dose,mixed,y", *lines[:n]]))
        data = prepare(tmp_path / "t.csv", format="features", grade_column="y")
        why = {entry["column"]: entry["why"] for entry in data.summary[place]}
        assert why["dose"].endswith("'n. d.' (t.csv:42) is not a number")
        assert "no number" not in why.get("mixed", "")
        assert place == "left_out" or why.keys() == {"dose"}


def test_decimal_commas_are_reported(tmp_path: Path) -> None:
    lines = [f"{i // 7},{i % 7};{i % 2}" for i in range(300)]
    (tmp_path / "t.csv").write_text("\n".join(["dose;y", *lines]))
    data = prepare(tmp_path / "t.csv", format="features", grade_column="y")
    why = "'0,0' (t.csv:2) is not a number: write decimals with a point"
    assert data.summary["doubtful"] == [{"column": "dose", "why": why}]


def test_a_column_with_one_value_and_gaps_is_kept(patients: pl.DataFrame) -> None:
    rows = patients.with_columns(seen=pl.when(pl.int_range(30) % 2 == 0).then(1.0))
    data = prepared(rows, split=(1.0, 0.0, 0.0))
    assert data.columns is not None
    assert data.columns.numbers == ("age", "seen")


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
        result = np.bincount(splits[rows.grades == grade], minlength=3)
        assert result.sum() == n
        assert result[0] >= 1
        for number, least in ((1, 5), (2, 3)):
            if n >= least:
                assert abs(result[number] - parts[number] * n) <= 1
            else:
                assert result[number] == 0
    again = assign(rows, SplitOptions(parts, 0.1, seed))
    assert (again == splits).all()


def test_another_seed_gives_another_split(patients: pl.DataFrame) -> None:
    one, same, other = (ages(prepared(patients, seed=seed)) for seed in (0, 0, 1))
    assert one == same != other


def test_every_row_is_in_one_split(patients: pl.DataFrame) -> None:
    data = prepared(patients, split="0.6,0.2,0.2")
    result = ages(data)
    assert [len(result[name]) for name in SPLITS] == [18, 6, 6]
    assert sorted(chain.from_iterable(result.values())) == [20.5 + i for i in range(30)]
    assert all(
        data.summary[name]["grades"] == [n] * 3 for name, n in zip(SPLITS, (6, 2, 2), strict=True)
    )


def test_given_files_stay_separate_and_validation_is_carved(
    patients: pl.DataFrame, tmp_path: Path
) -> None:
    patients[:24].write_csv(tmp_path / "a.csv")
    patients[24:].write_csv(tmp_path / "b.csv")
    files = {"train": tmp_path / "a.csv", "test": tmp_path / "b.csv"}
    data = prepare(**files, query_column="id", validation_share=0.25, **FEATURES)
    result = ages(data)
    assert result["test"] == [20.5 + i for i in range(24, 30)]
    assert data.summary["validation"]["grades"] == [2, 2, 2]
    assert sorted(result["train"] + result["validation"]) == [20.5 + i for i in range(24)]


# ---------------------------------------------------------------------------------- folders


def test_saved_data_is_loaded(patients: pl.DataFrame, tmp_path: Path) -> None:
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


def test_different_data_has_different_fingerprints(patients: pl.DataFrame) -> None:
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
def test_damaged_rows_are_detected(damage: Any, patients: pl.DataFrame) -> None:
    data = prepared(patients)
    folder.check_content(data)
    with pytest.raises(UserError, match="the test rows are damaged"):
        folder.check_content(replace(data, test=damage(data.test)))


def test_columns_that_do_not_match_the_rows_are_refused(
    patients: pl.DataFrame, tmp_path: Path
) -> None:
    data = prepared(patients)
    assert data.columns is not None
    more = Columns((*data.columns.numbers, "weight"), data.columns.levels)
    folder.save(replace(data, columns=more), tmp_path / "data")
    with pytest.raises(UserError):
        folder.load(tmp_path / "data")


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


def test_hashes_differ_between_rows_and_not_between_block_sizes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers = torch.tensor([[0.0, torch.nan], [-0.0, -torch.nan], [0.0, 1.0], [0.0, torch.nan]])
    grades, pixels = torch.tensor([0, 0, 0, 1]), torch.zeros((4, 2, 2, 1), dtype=torch.uint8)
    rows = Graded(numbers, torch.zeros((4, 0), dtype=torch.int32), pixels, grades)
    result = graded.hashes(rows)
    assert result[0] == result[1]
    assert len(result.unique()) == 3
    monkeypatch.setattr(graded, "HASH_BLOCK_BYTES", 1)
    assert torch.equal(graded.hashes(rows), result)
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


def test_whole_numbers_with_decimal_zeros_are_the_same_grades() -> None:
    words = ["9007199254740993", "9007199254740993.0", "9007199254740992.", "2"]
    table = pl.DataFrame({"x": range(40), "y": words * 10})
    names = prepare(table, format="features", grade_column="y").summary["grade_names"]
    assert names == ["2", "9007199254740992", "9007199254740993"]


def test_missing_grades_among_arrays_are_left_out() -> None:
    arrays = {"X": np.arange(40.0)[:, None], "y": [1, None, 2, 3] * 10}
    result = prepare(arrays, format="features")
    assert sum(result.summary[name]["rows"] for name in ("train", "validation", "test")) == 30
