"""Table files as lazy frames: CSV, TSV, JSON lines, Parquet and Arrow IPC, plain or compressed.

polars streams a file. Where it would refuse a text or misread it (a short line, a misplaced quote),
``record_reader`` reads the file and records the bad lines.
"""

from __future__ import annotations

import glob
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TypeVar

import polars as pl

from rankfold.data.read import record_reader
from rankfold.data.read.files import base_suffix, lines, open_binary
from rankfold.data.read.reading import LINE, Reading
from rankfold.errors import UserError

T = TypeVar("T")
SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
ARROW = (".arrow", ".ipc", ".feather")
_BOM = "\ufeff"
_LINES_COMPARED = 10  # to detect the separator


def is_text(path: Path) -> bool:
    """Whether a file has no column types: all values are text."""
    return base_suffix(path) not in (".parquet", *ARROW)


def column_names(frame: pl.LazyFrame) -> list[str]:
    """The columns of a frame but ``LINE``."""
    return [name for name in frame.collect_schema().names() if name != LINE]


def scan_text(
    path: Path,
    choose: record_reader.Choose,
    use: Callable[[pl.LazyFrame], T],
    reading: Reading,
    *,
    header: bool,
) -> T:
    """Pass the chosen columns to ``use``: by polars if it is exact here, else record by record."""
    mark = separator(path)
    try:
        is_json = base_suffix(path) in record_reader.JSON_LINES
        fast = _scan_json(path) if is_json else _scan_csv(path, mark, header=header)
        if fast is not None:
            return use(fast.select(LINE, *choose(column_names(fast))))
    except pl.exceptions.PolarsError:
        pass  # the record reader says what is wrong
    except OSError as error:
        raise _unreadable(path.name, error) from error
    return use(record_reader.read(path, mark, reading, choose, header=header))


def _scan_csv(path: Path, separator: str, *, header: bool) -> pl.LazyFrame | None:
    """All columns as text: the key 007 is not 7. None if polars would misread a line.

    polars pads short lines, joins lines after a stray quote and drops some carriage returns. So
    every line must be blank or a complete record. Then its rows are the lines, and blank lines are
    null.
    """
    head = record_reader.csv_head(path, separator, header=header)
    mark = re.escape(separator)
    field = rf'(?:[^"\r{_BOM}{mark}]*|"(?:[^"\r{_BOM}]|"")*")'
    line = pl.col("line")
    line = pl.when(pl.col(LINE) == 0).then(line.str.strip_prefix(_BOM)).otherwise(line)
    complete = line.str.contains(f"^{field}(?:{mark}{field}){{{len(head.names) - 1}}}$")
    hollow = line.str.contains(f"^[ {mark}]+$")
    blank = line == ""
    text = pl.scan_lines(path, row_index_name=LINE, glob=False)
    check = text.select((blank | (complete & ~hollow)).all(), blank.any().alias("blank"))
    ((exact, any_blank),) = check.collect(engine="streaming").rows()
    if not exact:
        return None
    rows = pl.scan_csv(
        path,
        separator=separator,
        has_header=header,
        skip_lines=head.line - 1,
        new_columns=head.names,
        infer_schema=False,
        glob=False,
    )
    rows = rows.with_row_index(LINE, offset=head.line + header)
    return rows.filter(~pl.all_horizontal(pl.col(head.names).is_null())) if any_blank else rows


def _scan_json(path: Path) -> pl.LazyFrame | None:
    """All fields as text. None if there are blank lines: polars does not number them."""
    numbered = pl.scan_lines(path, row_index_name=LINE, row_index_offset=1, glob=False)
    filled = numbered.filter(pl.col("line").str.strip_chars() != "")
    exact = filled.select(pl.col(LINE).max() == pl.len())
    if not exact.collect(engine="streaming").item():
        return None
    source = glob.escape(str(path))
    types = pl.scan_ndjson(source, infer_schema_length=None).collect_schema()
    schema: dict[str, pl.DataType] = {
        name: types[name] if types[name].is_nested() else pl.String()
        for name in record_reader.json_order(path, types)
    }
    return pl.scan_ndjson(source, schema=schema, row_index_name=LINE, row_index_offset=1)


def scan_binary(path: Path, reading: Reading) -> pl.LazyFrame:
    """A Parquet or Arrow file, its rows numbered in ``LINE``."""
    scan = pl.scan_parquet if base_suffix(path) == ".parquet" else pl.scan_ipc
    return scan(_decompressed(path, reading), glob=False).with_row_index(LINE, offset=1)


def _decompressed(path: Path, reading: Reading) -> Path:
    if path.suffix.lower() not in (".gz", ".zst"):
        return path
    copy = reading.new_file()
    with open_binary(path) as compressed, copy.open("wb") as file:
        shutil.copyfileobj(compressed, file, 2**22)
    return copy


@contextmanager
def readable(table: str) -> Iterator[None]:
    """Errors of polars become UserErrors."""
    try:
        yield
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _unreadable(table, error) from error


def _unreadable(table: str, error: Exception) -> UserError:
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return UserError(
        f"cannot read {table}: {first}",
        hint="is the file complete, and does its suffix match its format?",
    )


def separator(path: Path) -> str:
    """The separator of the columns: that of the suffix, else the commonest in the first line.

    Quoted text does not count. A space separates only where there is no other mark, since names of
    columns contain spaces. They contain commas too: a suffix's separator gives way if its count
    differs between the first lines while that of another mark does not.
    """
    filled = (text for _, text in lines(path) if text.strip())
    first = "\n".join(islice(filled, _LINES_COMPARED))
    unquoted = _QUOTED.sub("", first).split("\n")
    counts = {mark: [line.count(mark) for line in unquoted] for mark in ",\t;| "}
    usual = SEPARATORS.get(base_suffix(path), "")
    if usual and counts[usual][0]:
        steady = [mark for mark in ",\t;|" if counts[mark][0] and len(set(counts[mark])) == 1]
        if usual in steady or not steady:
            return usual
        return max(steady, key=lambda mark: counts[mark][0])
    return max(counts, key=lambda mark: (mark != " " and counts[mark][0] > 0, counts[mark][0]))


_QUOTED = re.compile(r'(?<![^,\t;| \n])"(?:[^"]|"")*+(?:"|$)')  # at the beginning of a field
