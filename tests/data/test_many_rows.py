"""More rows than polars can number are refused, without reading so many."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pair_tables import FRAME, write

import rankfold as rf
from rankfold.data.read import values
from rankfold.errors import UserError

N = 2**32 + 6
NUMBERED = pl.LazyFrame.with_row_index


@pytest.fixture(autouse=True)
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row numbers begin so late that polars panics; the count is reported to be as large."""

    def late(frame: pl.LazyFrame, name: str, **_offset: int) -> pl.LazyFrame:
        return NUMBERED(frame, name, offset=2**32 - 2)

    def count(frame: pl.LazyFrame) -> int:
        return N if counted(frame) else 0

    counted = values.count_rows
    monkeypatch.setattr(pl.LazyFrame, "with_row_index", late)
    monkeypatch.setattr(values, "count_rows", count)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow"])
@pytest.mark.parametrize("options", [{}, {"format": "features", "grade_column": "rating"}])
def test_a_file_of_too_many_rows(suffix: str, options: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / f"t{suffix}"
    path.write_bytes(write(FRAME, suffix))
    with pytest.raises(UserError, match=r"^t\.\w+ has 4,294,967,302 rows, and polars") as caught:
        rf.prepare(path, **options)
    assert "rankfold[large]" in caught.value.hint


def test_files_of_too_many_rows_together(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"  # its reader numbers records by itself
    path.write_bytes(write(FRAME, ".jsonl"))
    with pytest.raises(UserError, match="the input has 4,294,967,302 rows"):
        rf.prepare(path)


def test_other_panics_are_reported_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(write(FRAME, ".parquet"))
    monkeypatch.setattr(values, "count_rows", lambda _frame: 10)
    with pytest.raises(UserError, match=r"cannot read t\.parquet"):
        rf.prepare(path)
