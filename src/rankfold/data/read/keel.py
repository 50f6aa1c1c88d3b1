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

``?`` and ``<null>`` are missing. Without ``@outputs`` the output is what ``@inputs`` leaves out, if
that is one attribute; without either it is the last attribute.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import polars as pl

from rankfold.data.read.files import LINE, PLACES_SHOWN, Reading, lines
from rankfold.errors import UserError

MISSING = ("", "?", "<null>")
COMMENT = "%"
HINT = "a KEEL file has lines @attribute NAME TYPE, then @data, then a row per line"
_ATTRIBUTE = re.compile(r"""@attribute\s+('[^']*'|"[^"]*"|[^\s{\[]+)\s*(.*)""", re.IGNORECASE)
_NOMINAL = re.compile(r"\{(.*)\}")
_NUMBER = re.compile(r"(integer|real|numeric)\b", re.IGNORECASE)
_BOUND = r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*"
_RANGE = re.compile(rf"\[{_BOUND},{_BOUND}\]", re.IGNORECASE)
_SLACK = 1e-6  # of the larger bound: bounds may be rounded


class Header(NamedTuple):
    """What a file says of its columns."""

    names: tuple[str, ...]
    values: Mapping[str, tuple[str, ...]]  # of each nominal column, in the order of the file
    ranges: Mapping[str, tuple[float, float]]  # of columns of numbers, where the file says them
    output: str | None  # None: there is none, or the file does not say which it is
    used: tuple[str, ...]  # inputs and outputs


def looks_like_keel(path: Path) -> bool:
    """Whether the first line that says something is one of a header."""
    first = next((text for _, text in islice(_said(path), 1)), "")
    return re.match(r"@(relation|attribute)\b", first, re.IGNORECASE) is not None


def read(path: Path, reading: Reading, output: str | None = None) -> tuple[Header, pl.DataFrame]:
    """The header and the rows, their lines in ``LINE``; a row that breaks its promises is bad.

    ``output`` is an attribute that is asked for, whatever the header says. Only what is no value of
    a nominal output stays: it is for those who know the grades to judge.
    """
    said = _said(path)
    header = _header(said, path.name, output)
    rows = list(_rows(said, len(header.names), path.name, reading))
    schema: dict[str, pl.DataType] = {LINE: pl.UInt32(), **dict.fromkeys(header.names, pl.String())}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    text = pl.col(header.names)
    frame = frame.with_columns(pl.when(~text.str.to_lowercase().is_in(MISSING)).then(text))
    return header, _as_promised(frame.select(LINE, *header.used), header, path.name, reading)


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


def _header(said: Iterable[tuple[int, str]], file: str, asked: str | None = None) -> Header:
    kinds: list[tuple[str, str]] = []
    inputs: list[str] = []
    outputs: list[str] = []
    for number, text in said:
        word, rest = (*text.split(None, 1), "")[:2]
        word = word.lower()
        if found := _ATTRIBUTE.match(text):
            name, kind = _unquoted(found[1]), found[2].strip()
            if not _NOMINAL.fullmatch(kind) and not _NUMBER.match(kind):
                raise UserError(f"{file}:{number} has an attribute of type {kind!r}", hint=HINT)
            kinds.append((name, kind))
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
    if asked in [name for name, _ in kinds]:  # another is told of where columns are
        outputs = [str(asked)]
    return _checked(kinds, inputs, outputs, file)


def _checked(
    kinds: list[tuple[str, str]], inputs: list[str], outputs: list[str], file: str
) -> Header:
    names = [name for name, _ in kinds]
    at_least = 1 if inputs else 2  # a lone input has no output beside it, and can be predicted from
    if len(set(names)) < max(len(names), at_least):
        raise UserError(f"{file} has no two attributes of different names", hint=HINT)
    for name in (*inputs, *outputs):
        if name not in names:
            raise UserError(f"{file} has no attribute {name!r}, which its header names", hint=HINT)
    if len(outputs) > 1:
        raise UserError(
            f"{file} has {len(outputs)} outputs: {', '.join(outputs)}", hint="a grade is one output"
        )
    output = outputs[0] if outputs else _left_to_be_output(names, inputs)
    used = tuple(name for name in names if not inputs or name in inputs or name == output)
    values = {
        name: tuple(_listed(found[1]))
        for name, kind in kinds
        if (found := _NOMINAL.fullmatch(kind))
    }
    ranges = {
        name: (float(found[1]), float(found[2]))
        for name, kind in kinds
        if name not in values and (found := _RANGE.search(kind))
    }
    return Header(tuple(names), values, ranges, output, used)


def _left_to_be_output(names: list[str], inputs: list[str]) -> str | None:
    """The output where none is named; None: all are inputs, or several are not."""
    left = [name for name in names if name not in inputs] if inputs else names[-1:]
    return left[0] if len(left) == 1 else None


def _rows(
    said: Iterable[tuple[int, str]], width: int, file: str, reading: Reading
) -> Iterator[list[int | str]]:
    for number, text in said:
        row = [value.strip() for value in text.split(",")]
        if len(row) == width:
            yield [number, *map(_unquoted, row)]
        else:
            reading.bad.add("a wrong number of columns", f"{file}:{number}")


def _as_promised(frame: pl.DataFrame, header: Header, file: str, reading: Reading) -> pl.DataFrame:
    """The same with numbers where the header promises them; rows that break it are left out."""
    for name in header.used:
        for reason, breach in _breaches(name, header):
            wrong = frame.select(breach.fill_null(value=False)).to_series()
            for place, line in enumerate(frame[LINE].filter(wrong).head(PLACES_SHOWN)):
                reading.bad.add(reason, f"{file}:{line}", 0 if place else int(wrong.sum()))
            frame = frame.filter(~wrong)
    numbers = [name for name in header.used if name not in header.values]
    return frame.with_columns(pl.col(numbers).cast(pl.Float64))


def _breaches(name: str, header: Header) -> Iterator[tuple[str, pl.Expr]]:
    """What a row may have in a column against the header, and whether it has; null: it has not."""
    text = pl.col(name)
    if name in header.values:
        if name != header.output and header.values[name]:
            yield f"a value of {name!r} that is not listed", ~text.is_in(header.values[name])
        return
    number = text.cast(pl.Float64, strict=False)
    yield f"a value of {name!r} that is not a number", number.is_null() & text.is_not_null()
    if name in header.ranges:
        low, high = header.ranges[name]
        slack = _SLACK * max(abs(low), abs(high))
        outside = (number < low - slack) | (number > high + slack)
        reason = f"a value of {name!r} outside of [{low:g}, {high:g}]"
        yield reason, outside & number.is_not_nan()  # NaN is a missing value


def _listed(text: str) -> list[str]:
    return [_unquoted(word.strip()) for word in text.split(",") if word.strip()]


def _unquoted(word: str) -> str:
    quoted = len(word) > 1 and word[0] == word[-1] and word[0] in "'\""
    return word[1:-1] if quoted else word
