"""Text tables in other spellings: encoding, separator, decimal mark, missing values."""

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow
import pytest

from rankfold.data.prepare import prepare
from rankfold.data.read.values import plain_number
from rankfold.errors import UserError
from rankfold.types import Dataset

ALL = (1.0, 0.0, 0.0)


def pairs(data: Dataset) -> set[tuple[Any, ...]]:
    train = data.split("train")
    keys = (data.queries.take(train.query_of_pair()), data.candidates.take(train.candidates))
    return set(zip(*keys, train.all_grades().tolist(), strict=True))


AMOUNTS = {  # as written; with a decimal point, with a decimal comma; None: no number
    "1.234,50 €": (None, 1234.5),
    "33,50 €": (None, 33.5),
    "$1,234.50": (1234.5, None),
    "1,234,567": (1234567, None),
    "1,234": (None, 1.234),
    "$1,234": (1234, 1.234),
    "1.234": (1.234, 1234),
    "-$3.20": (-3.2, -3.2),
    "EUR 5": (5, 5),
    "12 %": (12, 12),
    "1e-3": (1e-3, 1e-3),
    "2024-01-02": (None, None),
    "about 5": (None, None),
}


@pytest.mark.parametrize(("place", "decimal"), [(0, "."), (1, ",")])
def test_amounts_as_people_write_them(place: int, decimal: str) -> None:
    frame = pl.DataFrame({"text": [*AMOUNTS]})
    number = plain_number(pl.col("text"), decimal).cast(pl.Float64, strict=False)
    found = frame.select(number).to_series().to_list()
    assert found == pytest.approx([values[place] for values in AMOUNTS.values()])


def test_columns_of_amounts_are_numbers(tmp_path: Path) -> None:
    grades = ["low", "high"] * 10
    rows = [f"{g};{n + 1}.000,{n % 10}0 €;{n}.000;k{n}" for n, g in enumerate(grades)]
    (tmp_path / "rows.csv").write_text("\n".join(["grade;amount;code;kind", *rows]) + "\n")
    how = {"format": "features", "grade_column": "grade", "grades": "low,high", "split": ALL}
    data = prepare(tmp_path / "rows.csv", decimal=",", **how)
    assert data.columns is not None
    assert "amount" in data.columns.numbers
    numbers = data.graded("train").numbers[:, data.columns.numbers.index("amount")]
    expected = [1000 * n + 1000 + n % 10 / 10 for n in range(20)]
    assert sorted(numbers.tolist()) == pytest.approx(expected)


def test_a_mark_of_utf_8_counts_more_than_the_encoding(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_bytes("user,item\nzoë,ä\nbob,b\n".encode("cp1252"))
    (tmp_path / "f.csv").write_bytes("item,colour\nä,grün\nb,rot\n".encode("utf-8-sig"))
    files = {"candidate_features": tmp_path / "f.csv"}
    data = prepare(tmp_path / "r.csv", encoding="cp1252", split=ALL, **files)
    assert data.candidate_features is not None
    assert data.candidate_features.columns.levels == {"colour": ("grün", "rot")}


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "cp1252"])
def test_other_encodings(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_bytes("user,item\nzoë,ä\nbob,b\n".encode(encoding))
    data = prepare(tmp_path / "r.csv", encoding=encoding, split=ALL)
    assert pairs(data) == {("zoë", "ä", 1.0), ("bob", "b", 1.0)}


def test_wrong_encodings_are_refused(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_bytes("user,item\nzoë,a\n".encode("latin-1"))
    with pytest.raises(UserError, match="not utf-16 text"):
        prepare(tmp_path / "r.csv", encoding="utf-16")
    for unknown in ("latin-one", "bz2", "rot13", "undefined", "", "\0"):  # some are no text codecs
        with pytest.raises(UserError, match="there is no encoding"):
            prepare(tmp_path / "r.csv", encoding=unknown)


def test_decimal_commas_are_grades(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("user;item;rating\na;x;4,5\nb;y;3\n")
    assert pairs(prepare(tmp_path / "r.csv", decimal=",", split=ALL)) == {
        ("a", "x", 4.5),
        ("b", "y", 3.0),
    }


def test_decimal_commas_are_features(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("user;item\na;x\nb;y\n")
    (tmp_path / "f.csv").write_text("item;price;name\nx;1,5;p,q\ny;;r\n")
    data = prepare(
        tmp_path / "r.csv", candidate_features=tmp_path / "f.csv", decimal=",", split=ALL
    )
    assert data.candidate_features is not None
    assert data.candidate_features.numbers[0].tolist() == [1.5]
    assert data.candidate_features.columns.levels == {"name": ("p,q", "r")}


def test_a_given_separator_is_used(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("user:item\na,b:x\nc,d:y\n")
    assert pairs(prepare(tmp_path / "r.csv", separator=":", split=ALL)) == {
        ("a,b", "x", 1.0),
        ("c,d", "y", 1.0),
    }
    for mark in ("::", "é"):
        with pytest.raises(UserError, match="must be one ASCII character"):
            prepare(tmp_path / "r.csv", separator=mark)


@pytest.mark.parametrize("word", ["NULL", "NA", "NaN", "nan", "None", "<NA>", "\\N"])
def test_words_for_nothing_are_no_products(word: str, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(f"user,item\na,x\nb,{word}\n{word},x\n")
    data = prepare(tmp_path / "r.csv", split=ALL)
    assert pairs(data) == {("a", "x", 1.0)}
    assert {entry["why"] for entry in data.summary["dropped"]} == {
        f"a candidate {word}, which counts as missing",
        f"a query {word}, which counts as missing",
    }


def test_missing_words_can_be_chosen(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("user,item\na,NA\nb,?\n")
    assert pairs(prepare(tmp_path / "r.csv", missing="", split=ALL)) == {
        ("a", "NA", 1.0),
        ("b", "?", 1.0),
    }
    assert pairs(prepare(tmp_path / "r.csv", missing="?,-", split=ALL)) == {("a", "NA", 1.0)}


def test_chosen_missing_words_are_missing_features(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("user,item\na,x\nb,y\n")
    (tmp_path / "f.csv").write_text("item,brand,size\nx,?,?\ny,acme,2\n")
    data = prepare(tmp_path / "r.csv", candidate_features=tmp_path / "f.csv", missing="?")
    assert data.candidate_features is not None
    assert data.candidate_features.columns.levels == {"brand": ("acme",)}
    assert data.candidate_features.columns.numbers == ("size",)


def test_day_first_times_split(tmp_path: Path) -> None:
    rows = ["a,x,31/12/2023", "a,y,01/01/2024", "a,z,02/12/2023"]
    (tmp_path / "r.csv").write_text("user,item,date\n" + "\n".join(rows) + "\n")
    data = prepare(tmp_path / "r.csv", split="last")
    assert data.candidates.take(data.split("test").candidates).to_list() == ["y"]


def test_partitioned_parquet_is_one_table(tmp_path: Path) -> None:
    for item, users in (("x", ["a", "b"]), ("y", ["a"])):
        folder = tmp_path / "pairs" / f"item={item}"
        folder.mkdir(parents=True)
        pl.DataFrame({"user": users}).write_parquet(folder / "part-0.snappy.parquet")
    (tmp_path / "pairs" / "_SUCCESS").touch()
    pl.DataFrame({"user": ["no"]}).write_parquet(tmp_path / "pairs" / "_old.parquet")
    assert pairs(prepare(tmp_path / "pairs", split=ALL)) == {
        ("a", "x", 1.0),
        ("b", "x", 1.0),
        ("a", "y", 1.0),
    }


class Stream:
    """A result that is read as an Arrow stream only, as that of DuckDB."""

    def __init__(self, frames: list[pl.DataFrame]) -> None:
        self.table = pyarrow.concat_tables([frame.to_arrow() for frame in frames])

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


def test_arrow_streams_are_read_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write = pl.DataFrame.write_parquet

    def count(frame: pl.DataFrame, *arguments: Any, **options: Any) -> None:
        written.append(len(frame))
        write(frame, *arguments, **options)

    monkeypatch.setattr(pl.DataFrame, "write_parquet", count)
    halves = [pl.DataFrame({"user": [n, n], "item": ["x", "y"]}) for n in (1, 2)]
    data = prepare(Stream(halves), split=ALL)
    assert pairs(data) == {(n, item, 1.0) for n in (1, 2) for item in "xy"}
    assert written == [0, 2, 2]


def test_equal_sides_are_refused() -> None:
    table = pl.DataFrame({"user": range(10), "item": range(10)})
    with pytest.raises(UserError, match="query and candidate are equal in every row"):
        prepare(table)


def test_repeated_and_leaking_features_are_named() -> None:
    rows = [(f"u{u}", f"i{i}", 1 + (u * i) % 5) for u in range(40) for i in range(20) if u >= i]
    table = pl.DataFrame(rows, ["user", "item", "rating"], orient="row")
    counts = table.group_by("item").agg(n=pl.len(), mean=pl.col("rating").mean()).sort("item")
    more = counts.with_columns(again=pl.col("n") * 2, copy=pl.col("mean"), own=pl.int_range(20))
    more = more.with_columns(far=pl.when(pl.col("own") < 3).then(1e300).otherwise("own"))
    data = prepare(table, candidate_features=more)
    suspect = {
        entry["column"]: entry["why"] for entry in data.summary["features"]["candidate"]["suspect"]
    }
    assert suspect["n"] == "is the number of pairs, those of validation and test included"
    assert suspect["again"] == suspect["n"]
    assert suspect["mean"] == "is the mean grade, those of validation and test included"
    assert suspect["far"] == "has 3 values beyond 3.4e38, which count as missing"
    assert "own" not in suspect
