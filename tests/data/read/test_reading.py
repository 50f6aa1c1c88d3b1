"""Temporary files, and the record of bad rows."""

from pathlib import Path

import polars as pl
import pytest

from rankfold.data.read import reading as module
from rankfold.data.read.bad_rows import BadRows
from rankfold.data.read.reading import Reading, spool


@pytest.mark.parametrize("n", [0, 1, 3, 25])
def test_spooled_rows_are_read_back_in_order(
    n: int, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SPOOL_ROWS", 2)
    rows = [[i, str(i) if i % 3 else None] for i in range(n)]
    schema = {"number": pl.Int64, "text": pl.String}
    frame = spool(iter(rows), schema, reading)
    assert frame.collect_schema() == pl.Schema(schema)
    assert [list(row) for row in frame.collect(engine="streaming").rows()] == rows


def test_spooling_works_in_a_folder_named_like_a_glob(tmp_path: Path) -> None:
    (tmp_path / "a[1]*").mkdir()
    frame = spool([[1]], {"n": pl.Int64}, Reading(tmp_path / "a[1]*"))
    assert frame.collect().rows() == [(1,)]


def test_temporary_files_have_different_names(reading: Reading) -> None:
    first = reading.new_file()
    first.touch()
    assert reading.new_file() != first


# ---------------------------------------------------------------------------------- bad rows


def test_bad_rows_are_counted_and_the_first_ones_shown() -> None:
    bad = BadRows()
    for line in (2, 5, 7, 8):
        bad.add("a stray quote", f"a.csv:{line}")
    bad.add("a missing query", "b.csv:1")
    bad.add("a missing grade", "b.csv:4", 1200)
    assert bad.describe() == [
        "4 rows with a stray quote (a.csv:2, a.csv:5, a.csv:7, ...)",
        "1 row with a missing query (b.csv:1)",
        "1,200 rows with a missing grade (b.csv:4, ...)",
    ]
