"""The KEEL format: a header that says what each column holds, then lines of values.

::

    @relation name
    @attribute Age integer [0, 99]
    @attribute Sex {Male, Female}
    @attribute Class {low, high}
    @inputs Age, Sex
    @outputs Class
    @data
    31, Male, low

``?`` and ``<null>`` are missing. Without ``@outputs`` the last attribute is the output.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import polars as pl

from rankfold.data.reading import LINE, PLACES_SHOWN, Reading, lines
from rankfold.errors import UserError

MISSING = ("", "?", "<null>")
COMMENT = "%"
HINT = "a KEEL file has lines @attribute NAME TYPE, then @data, then a row per line"
_ATTRIBUTE = re.compile(r"""@attribute\s+('[^']*'|"[^"]*"|[^\s{\[]+)\s*(.*)""", re.IGNORECASE)
_NUMBER = re.compile(r"(integer|real|numeric)\b", re.IGNORECASE)


class Header(NamedTuple):
    """What a file says of its columns."""

    names: tuple[str, ...]
    values: Mapping[str, tuple[str, ...]]  # of each nominal column, in the order of the file
    output: str
    used: tuple[str, ...]  # inputs and outputs


def looks_like_keel(path: Path) -> bool:
    """Whether the first line that says something is one of a header."""
    first = next((text for _, text in islice(_said(path), 1)), "")
    return re.match(r"@(relation|attribute)\b", first, re.IGNORECASE) is not None


def read(path: Path, reading: Reading) -> tuple[Header, pl.DataFrame]:
    """The header and the rows, their lines in ``LINE``; a row that breaks its promises is bad."""
    said = _said(path)
    header = _header(said, path.name)
    rows = list(_rows(said, len(header.names), path.name, reading))
    schema: dict[str, pl.DataType] = {LINE: pl.UInt32(), **dict.fromkeys(header.names, pl.String())}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    text = pl.col(header.names)
    frame = frame.with_columns(pl.when(~text.is_in(MISSING)).then(text))
    return header, _with_numbers(frame.select(LINE, *header.used), header, path.name, reading)


def row_lines(path: Path) -> list[int]:
    """The line of each row, also of bad ones."""
    said = _said(path)
    _header(said, path.name)
    return [number for number, _ in said]


def _said(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that are neither empty nor comments."""
    for number, line in lines(path):
        text = line.strip()
        if text and not text.startswith(COMMENT):
            yield number, text


def _header(said: Iterable[tuple[int, str]], file: str) -> Header:
    names: list[str] = []
    values: dict[str, tuple[str, ...]] = {}
    inputs: list[str] = []
    outputs: list[str] = []
    for number, text in said:
        word, rest = (*text.split(None, 1), "")[:2]
        word = word.lower()
        if found := _ATTRIBUTE.match(text):
            name, kind = _unquoted(found[1]), found[2].strip()
            names.append(name)
            if kind.startswith("{") and kind.endswith("}"):
                values[name] = tuple(_listed(kind[1:-1]))
            elif not _NUMBER.match(kind):
                raise UserError(f"{file}:{number} has an attribute of type {kind!r}", hint=HINT)
        elif word in ("@input", "@inputs"):
            inputs = _listed(rest)
        elif word in ("@output", "@outputs"):
            outputs = _listed(rest)
        elif word == "@data":
            break
        elif word != "@relation":
            raise UserError(f"{file}:{number} is no line of a KEEL header", hint=HINT)
    else:
        raise UserError(f"{file} has no @data", hint=HINT)
    return _checked(names, values, inputs, outputs, file)


def _checked(
    names: list[str],
    values: dict[str, tuple[str, ...]],
    inputs: list[str],
    outputs: list[str],
    file: str,
) -> Header:
    if len(names) < 2 or len(set(names)) < len(names):
        raise UserError(f"{file} has no two attributes of different names", hint=HINT)
    for name in (*inputs, *outputs):
        if name not in names:
            raise UserError(f"{file} has no attribute {name!r}, which its header names", hint=HINT)
    if len(outputs) > 1:
        raise UserError(
            f"{file} has {len(outputs)} outputs: {', '.join(outputs)}", hint="a grade is one output"
        )
    output = outputs[0] if outputs else names[-1]
    used = tuple(name for name in names if not inputs or name in inputs or name == output)
    return Header(tuple(names), values, output, used)


def _rows(
    said: Iterable[tuple[int, str]], width: int, file: str, reading: Reading
) -> Iterator[list[int | str]]:
    for number, text in said:
        row = [value.strip() for value in text.split(",")]
        if len(row) == width:
            yield [number, *map(_unquoted, row)]
        else:
            reading.bad.add("a wrong number of columns", f"{file}:{number}")


def _with_numbers(frame: pl.DataFrame, header: Header, file: str, reading: Reading) -> pl.DataFrame:
    """The same with numbers where the header promises them; rows without are noted, left out."""
    for name in header.used:
        if name in header.values:
            continue
        numbers = frame[name].cast(pl.Float64, strict=False)
        wrong = numbers.is_null() & frame[name].is_not_null()
        for place, line in enumerate(frame[LINE].filter(wrong).head(PLACES_SHOWN)):
            reason = f"a value of {name!r} that is not a number"
            reading.bad.add(reason, f"{file}:{line}", 0 if place else int(wrong.sum()))
        frame = frame.with_columns(numbers).filter(~wrong)
    return frame


def _listed(text: str) -> list[str]:
    return [_unquoted(word.strip()) for word in text.split(",") if word.strip()]


def _unquoted(word: str) -> str:
    quoted = len(word) > 1 and word[0] == word[-1] and word[0] in "'\""
    return word[1:-1] if quoted else word
