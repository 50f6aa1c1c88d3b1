"""A table of pairs in every format, and how its rows are read."""

import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import polars as pl

from rankfold.data.read import dialect, record_reader, tables
from rankfold.data.read.columns import NONE, PairColumns
from rankfold.data.read.reading import Reading
from rankfold.data.read.tables import read_table

Pack = Callable[[bytes, str], bytes]
Written = Callable[[str, str | bytes], AbstractContextManager[tuple[Path, Reading]]]

SUFFIXES = [*dialect.SEPARATORS, ".txt", *record_reader.JSON_LINES, ".parquet", *tables.ARROW]
USERS = ["ann", "bob", "zoë", "ann", 'q"uote', "com,ma"]
ITEMS = ["x", "y", "x", "日本", "a b", "tab\tbed"]
GRADES = [1.0, 2.5, 3.0, 0.5, 4.0, 5.0]
FRAME = pl.DataFrame({"user": USERS, "note": "n", "item": ITEMS, "rating": GRADES})
ROWS = list(zip(USERS, ITEMS, GRADES, strict=True))


def read(path: Path, reading: Reading, *, header: bool = True, **columns: str) -> list[Any]:
    frame = read_table(path, PairColumns(**{"time": NONE, **columns}), reading, header=header)
    return frame.collect(engine="streaming").rows()


def write(frame: pl.DataFrame, suffix: str) -> bytes:
    match suffix:
        case ".csv":
            return frame.write_csv().encode()
        case ".tsv" | ".tab":
            return frame.write_csv(separator="\t").encode()
        case ".txt":
            return frame.write_csv(separator=";").encode()
        case ".jsonl" | ".ndjson" | ".json":
            return frame.write_ndjson().encode()
        case ".parquet":
            frame.write_parquet(file := io.BytesIO())
        case _:
            frame.write_ipc(file := io.BytesIO())
    return file.getvalue()
