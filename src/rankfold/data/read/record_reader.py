"""The exact reader of text tables: record by record in Python, with true line numbers.

It is slow. It reads all JSON lines, and CSV files that polars would refuse or misread.
"""

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import polars as pl

from rankfold.data.read.columns import distinct
from rankfold.data.read.files import base_suffix, lines, open_binary
from rankfold.data.read.reading import LINE, Reading, spool
from rankfold.errors import UserError, pluralize

T = TypeVar("T")
JSON_LINES = (".jsonl", ".ndjson", ".json")
MAX_RECORD_LINES = 1000  # of one quoted field; then its quote counts as never closed
NOT_UTF8 = "bytes that are not UTF-8"
_RECORDS_COMPARED = 8  # with the column names
STRAY, UNCLOSED = "a stray quote", "a quote that is never closed"

Record = list[str] | str
"""The fields of a record, or the reason why it has none."""
Choose = Callable[[Sequence[str]], Sequence[str]]
"""From the names of all columns to those that are needed."""


class Head(NamedTuple):
    """The columns of a CSV file, and the line of its first record."""

    names: list[str]
    line: int


def read(
    path: Path, separator: str, reading: Reading, choose: Choose, *, header: bool = True
) -> pl.LazyFrame:
    """The well-formed records of a text table: the chosen columns as text, lines in ``LINE``."""
    plain, nested = set[str](), set[str]()
    if base_suffix(path) in JSON_LINES:
        plain, nested = _json_names(path)
        names = choose(json_order(path, plain | nested))
        rows = _json_rows(path, names, reading)
    else:
        head = csv_head(path, separator, header=header)
        names = choose(head.names)
        records = islice(_records(path, separator), 1 if header else 0, None)
        rows = _csv_rows(path, records, head.names, names, reading)
    schema: dict[str, Any] = {LINE: pl.Int64(), **dict.fromkeys(names, pl.String())}
    schema |= {name: pl.List(pl.String) for name in names if name in nested - plain}
    return spool(_decoded(rows, path, reading), schema, reading)


def row_lines(path: Path, separator: str) -> list[int]:
    """The line of each row of a text table with a header, including unusable rows."""
    if base_suffix(path) in JSON_LINES:
        return [line for line, _ in objects(path)]
    return [line for line, _ in islice(_records(path, separator), 1, None)]


def _decoded(
    rows: Iterable[Sequence[Any]], path: Path, reading: Reading
) -> Iterator[Sequence[Any]]:
    """The rows that are valid UTF-8; an invalid byte was read as a lone surrogate."""
    for row in rows:
        if any(v and not is_decoded(v) for v in row[1:]):
            reading.bad.add(NOT_UTF8, f"{path.name}:{row[0]}")
        else:
            yield row


def is_decoded(text: str) -> bool:
    """Whether a text was valid UTF-8."""
    return text.isascii() or not _SURROGATE.search(text)


_SURROGATE = re.compile("[\ud800-\udfff]")


def raw_lines(path: Path) -> Iterator[str]:
    """The lines of a text, with their ends; an invalid byte becomes a lone surrogate."""
    with io.TextIOWrapper(
        open_binary(path), "utf-8-sig", errors="surrogateescape", newline="\n"
    ) as file:
        yield from file


def not_text(path: Path) -> UserError:
    """For null bytes, which occur in UTF-16, UTF-32 and binary files."""
    return UserError(
        f"{path.name} is not UTF-8 text",
        hint="name its encoding: --encoding utf-16; or correct its suffix",
    )


# ---------------------------------------------------------------------------------- CSV


def csv_head(path: Path, separator: str, *, header: bool) -> Head:
    """The names of the columns: the first record or, without a header, column_0, column_1, ..."""
    line, first = next(_records(path, separator), (0, []))
    if not first:
        raise UserError(f"{path.name} is empty", hint="a table starts with a line of column names")
    if isinstance(first, str):
        raise UserError(
            f"{path.name} has no readable first line: it has {first}",
            hint="a table starts with a line of column names",
        )
    if any("\0" in field for field in first):
        raise not_text(path)
    if [field.lower() for field in first] == ["sep=", ""]:
        raise UserError(
            f"{path.name} starts with a line that names the separator", hint="remove this line"
        )
    if any(re.search("\r(?!\n)", field) for field in first):
        raise UserError(
            f"{path.name} has lines that end with a carriage return alone",
            hint="end each line with a line feed",
        )
    if not header:
        return Head([f"column_{i}" for i in range(len(first))], line)
    plain = (re.sub(_SURROGATE, "\ufffd", name).strip() for name in first)
    names = [name or f"column_{i}" for i, name in enumerate(plain)]
    _check_width(names, path, separator)
    return Head(distinct(names), line)


def _check_width(names: Sequence[str], path: Path, separator: str) -> None:
    """A UserError if the next records have twice as many fields, as below a title."""
    after = islice(_records(path, separator), 1, 1 + _RECORDS_COMPARED)
    widths = [len(record) for _, record in after if not isinstance(record, str)]
    if len(widths) > 1 and 2 * len(names) <= widths[0] and len({*widths}) == 1:
        raise UserError(
            f"the first line of {path.name} names {pluralize(len(names), 'column')}, the next "
            f"lines have {widths[0]}",
            hint="remove the lines above the column names",
        )


def _csv_rows(
    path: Path,
    records: Iterable[tuple[int, Record]],
    names: Sequence[str],
    needed: Sequence[str],
    reading: Reading,
) -> Iterator[list[Any]]:
    place_of = {name: place for place, name in enumerate(names)}
    places = [place_of[name] for name in needed]
    for line, record in records:
        if isinstance(record, str):
            reading.bad.add(record, f"{path.name}:{line}")
        elif len(record) != len(names):
            reading.bad.add("a wrong number of columns", f"{path.name}:{line}")
        else:
            yield [line, *(record[place] for place in places)]


def _records(path: Path, separator: str) -> Iterator[tuple[int, Record]]:
    """``(first line, record)``, without blank lines.

    A quote that is never closed spoils its own line only: reading continues with the next line.
    """
    remaining = raw_lines(path)
    pending: list[str] = []
    line = 1
    while pending := pending or list(islice(remaining, 1)):
        used = 1
        if pending[0].strip(" \r\n"):
            record, used = _parse(pending, remaining, separator)
            yield line, record
        pending = pending[used:]
        line += used


def _parse(pending: list[str], remaining: Iterator[str], separator: str) -> tuple[Record, int]:
    """The record at the head of ``pending``, which grows as needed, and its number of lines."""
    used = 1
    record = _fields(pending[0], separator)
    while record == UNCLOSED and used < MAX_RECORD_LINES:
        if used == len(pending):
            pending += islice(remaining, 1)
        if used == len(pending):
            break
        used += 1
        if '"' in pending[used - 1]:
            record = _fields("".join(pending[:used]), separator)
    return record, 1 if isinstance(record, str) else used


def _fields(text: str, separator: str) -> Record:
    """The fields of a record. A quote counts at the beginning of a field only."""
    text = text.removesuffix("\n").removesuffix("\r")
    if '"' not in text:
        return text.split(separator)
    fields = []
    start = 0
    while True:
        if text.startswith('"', start):
            quoted = _QUOTED.match(text, start)
            if quoted is None:
                return UNCLOSED
            end = quoted.end()
            if end < len(text) and text[end] != separator:
                return STRAY
            fields.append(quoted[1].replace('""', '"'))
        else:
            end = text.find(separator, start)
            end = len(text) if end < 0 else end
            fields.append(text[start:end])
        if end == len(text):
            return fields
        start = end + 1


_QUOTED = re.compile(r'"([^"]*+(?:""[^"]*+)*+)"')


# ---------------------------------------------------------------------------------- JSON lines


def json_order(path: Path, names: Iterable[str]) -> list[str]:
    """Names in a fixed order: those of the first object, then sorted."""
    first = next((record for _, record in objects(path) if record), None)
    if first is None:
        raise UserError(f"{path.name} holds no JSON object", hint="write one object per line")
    return [*first, *sorted(set(names) - set(first))]


def _json_names(path: Path) -> tuple[set[str], set[str]]:
    """The names of all fields: those with a plain value, and those with a list or an object."""
    names: tuple[set[str], set[str]] = set(), set()
    for _, record in objects(path):
        for name, value in (record or {}).items():
            names[isinstance(value, list | dict)].add(name)
    return names


def _json_rows(path: Path, names: Sequence[str], reading: Reading) -> Iterator[list[Any]]:
    for line, record in objects(path):
        if record is None:
            reading.bad.add("no JSON object", f"{path.name}:{line}")
        else:
            yield [line, *(as_text(record.get(name)) for name in names)]


def objects(path: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """The number and the object of each line that is not blank; None if it holds no object."""
    for line, text in enumerate(raw_lines(path), start=1):
        if text.strip():
            try:
                record = json.loads(text, object_pairs_hook=_object)
            except (ValueError, RecursionError):
                record = None
            named = isinstance(record, dict) and is_decoded("".join(record))
            yield line, record if named else None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; of a repeated name the first value counts."""
    record = dict(pairs)
    return record if len(record) == len(pairs) else {**record, **dict(reversed(pairs))}


def as_text(value: Any) -> str | None:
    """A value as polars writes it; None if it is neither a finite number nor a text."""
    if isinstance(value, float):
        plain = Decimal(repr(value + 0.0))  # without the sign of a negative zero
        return format(plain, "f").removesuffix(".0") if isfinite(value) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | str) else None


# ---------------------------------------------------------------------------------- other lines


def parse_lines(path: Path, parse: Callable[[str], Iterable[T]], reading: Reading) -> Iterator[T]:
    """The rows that ``parse`` finds in each line of a text; a line that it refuses is a bad row."""
    for number, line in lines(path):
        if not line:
            continue
        try:
            rows = parse(line)
        except (ValueError, SyntaxError, TypeError, AttributeError, KeyError, RecursionError):
            reading.bad.add("an unreadable line", f"{path.name}:{number}")
        else:
            yield from rows
