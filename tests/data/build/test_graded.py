"""Rows with ordered grades: from tables, arrays and images to prepared data."""

from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from graded_samples import FEATURES, GRADES, SPLITS, ages, prepared
from hypothesis import given
from hypothesis import strategies as st

from rankfold.data import folder
from rankfold.data.build.graded_split import assign
from rankfold.data.build.grades import GradedRows
from rankfold.data.build.new_rows import read_rows
from rankfold.data.prepare import prepare
from rankfold.data.read.reading import LINE
from rankfold.data.read.results import RawRows
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


def test_numbers_that_are_not_finite_are_missing(patients: pl.DataFrame, tmp_path: Path) -> None:
    dose = [float("nan"), float("inf"), -float("inf"), *map(float, range(27))]
    data = prepared(patients.with_columns(dose=pl.Series(dose)), split=(1.0, 0.0, 0.0))
    assert data.graded("train").numbers[:, 1].isnan().tolist() == [True] * 3 + [False] * 27
    assert data.summary["too_large"] == {"dose": 2}
    text = ["1e39", "1e400", "", *map(str, range(27))]
    patients.with_columns(dose=pl.Series(text)).write_csv(tmp_path / "p.csv")
    data = prepared(tmp_path / "p.csv", split=(1.0, 0.0, 0.0))
    assert data.summary["too_large"] == {"dose": 2}


def test_uninformative_columns_are_dropped(patients: pl.DataFrame) -> None:
    rows = pl.concat([patients] * 80).with_columns(
        same=pl.lit(1.5),
        empty=pl.lit(None, pl.String),
        name=pl.int_range(2400).cast(pl.String) + "x",
        days=pl.date_range(pl.date(2000, 1, 1), pl.date(2010, 1, 1), eager=True)[:2400],
        code=pl.int_range(2400),
        day=pl.Series([f"2024-01-{1 + i % 28:02}" for i in range(2400)]),
    )
    data = prepared(rows, drop=["code"])
    assert data.columns == Columns(("age",), {"sex": ("f", "m")})
    why = {entry["column"]: entry["why"] for entry in data.summary["left_out"]}
    assert why.keys() == {"same", "empty", "name", "days", "code", "day"}
    assert "same value" in why["same"]
    assert "no value" in why["empty"]
    assert "distinct values" in why["name"]
    assert "Date" in why["days"]
    assert why["day"] == "it holds dates; --time-column day splits by them"
    assert why["code"] == "named by --drop"


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
    why = "'0,0' (t.csv:2) is not a number: write decimals with a point, or use --decimal ,"
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
    splits = assign(rows, parts, 0.1, seed)
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
    again = assign(rows, parts, 0.1, seed)
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


def test_graded_parts_are_graded(patients: pl.DataFrame) -> None:
    data = prepared(patients)
    assert isinstance(data.train, Graded)
    assert data.summary["numbers"] == 1
    assert data.summary["categories"] == 1
    assert data.summary["images"] is None


def test_missing_grades_among_arrays_are_left_out() -> None:
    arrays = {"X": np.arange(40.0)[:, None], "y": [1, None, 2, 3] * 10}
    result = prepare(arrays, format="features")
    assert sum(result.summary[name]["rows"] for name in ("train", "validation", "test")) == 30
