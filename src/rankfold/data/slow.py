"""The slow, exact reading of text tables: record by record in plain Python, with true line numbers.

Used where the fast reader refuses a file or would pad a short line, and to find a bad row's line.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from rankfold.data.reading import LINE, Reading, base_suffix, lines, open_binary, spool
from rankfold.errors import UserError

JSON_LINES = (".jsonl", ".ndjson", ".json")
LONGEST_RECORD = 100  # lines of one quoted field, before its quote counts as never closed

Record = list[str] | str
"""The fields of a record or, as a text, why it has none."""


def read(path: Path, separator: str, reading: Reading, *, header: bool) -> pl.LazyFrame:
    """The well-formed records of a text table, all columns as text, with their line in ``LINE``."""
    if base_suffix(path) in JSON_LINES:
        names = _json_names(path)
        rows: Iterable[list[Any]] = _json_rows(path, names, reading)
    else:
        names = _csv_names(path, separator, header=header)
        rows = _csv_rows(path, separator, names, reading, header=header)
    return spool(rows, {LINE: pl.Int64(), **dict.fromkeys(names, pl.String())}, reading)


def line_numbers(path: Path, separator: str, records: list[int], *, header: bool) -> list[int]:
    """The lines on which the records (numbers from 1, after the header) begin."""
    wanted = set(records)
    found: dict[int, int] = {}
    if base_suffix(path) in JSON_LINES:
        starts = (line for line, text in lines(path) if text.strip())
    else:
        starts = (line for line, _ in _records(path, separator))
    for number, line in enumerate(starts, start=0 if header else 1):
        if number in wanted:
            found[number] = line
            if len(found) == len(wanted):
                break
    return [found.get(record, record) for record in records]


# ---------------------------------------------------------------------------------- CSV


def _csv_names(path: Path, separator: str, *, header: bool) -> list[str]:
    first = next((record for _, record in _records(path, separator)), None)
    if not isinstance(first, list) or not first:
        raise UserError(
            f"{path.name} has no readable first line", hint="a table needs column names"
        )
    names = first if header else [f"column_{i}" for i in range(len(first))]
    if len(set(names)) < len(names):
        raise UserError(
            f"{path.name} names a column twice: {', '.join(names)}", hint="rename one of them"
        )
    return names


def _csv_rows(
    path: Path, separator: str, names: list[str], reading: Reading, *, header: bool
) -> Iterator[list[Any]]:
    for number, (line, record) in enumerate(_records(path, separator)):
        if (header and number == 0) or record == []:
            continue
        if isinstance(record, str):
            reading.bad.add(record, f"{path.name}:{line}")
        elif len(record) != len(names):
            reading.bad.add("a wrong number of columns", f"{path.name}:{line}")
        elif any("\ufffd" in field for field in record):
            reading.bad.add("bytes that are not UTF-8", f"{path.name}:{line}")
        else:
            yield [line, *(field or None for field in record)]


def _records(path: Path, separator: str) -> Iterator[tuple[int, Record]]:
    """``(line on which it begins, record)``; a blank line is a record without fields.

    A quote that is never closed spoils its own line only: reading goes on with the next one.
    """
    text = io.TextIOWrapper(open_binary(path), "utf-8-sig", errors="replace", newline="\n")
    with text as file:
        pending: list[str] = []
        line = 0
        while True:
            pending = pending or list(_take(file, 1))
            if not pending:
                return
            record, used = _parse(pending, file, separator)
            yield line + 1, record
            pending = pending[used:]
            line += used


def _parse(pending: list[str], file: Iterable[str], separator: str) -> tuple[Record, int]:
    """The record at the head of ``pending``, which grows as needed, and how many lines it takes."""
    for used in range(1, LONGEST_RECORD + 1):
        if used > len(pending):
            more = list(_take(file, 1))
            if not more:
                break
            pending += more
        joined = "".join(pending[:used]).rstrip("\r\n")
        try:
            return next(
                csv.reader(joined.splitlines(keepends=True), delimiter=separator, strict=True), []
            ), used
        except csv.Error as error:
            if "unexpected end" not in str(error):
                return "a stray quote", 1
    return "a quote that is never closed", 1


def _take(file: Iterable[str], n: int) -> Iterator[str]:
    for line in file:
        yield line
        n -= 1
        if n == 0:
            return


# ---------------------------------------------------------------------------------- JSON lines


def _json_names(path: Path) -> list[str]:
    """The names of all objects' fields, in order of first appearance."""
    names: dict[str, None] = {}
    for _, record in _objects(path):
        if record is not None:
            names.update(dict.fromkeys(record))
    if not names:
        raise UserError(f"{path.name} holds no JSON object", hint="write one object per line")
    return list(names)


def _json_rows(path: Path, names: list[str], reading: Reading) -> Iterator[list[Any]]:
    for line, record in _objects(path):
        if record is None:
            reading.bad.add("no JSON object", f"{path.name}:{line}")
        else:
            yield [line, *(_as_text(record.get(name)) for name in names)]


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    for line, text in lines(path):
        if text.strip():
            try:
                record = json.loads(text)
            except ValueError:
                record = None
            yield line, record if isinstance(record, dict) else None


def _as_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
