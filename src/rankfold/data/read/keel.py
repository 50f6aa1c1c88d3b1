"""The KEEL format: a header with the type of each column, then lines of values.

::

    @relation name
    @attribute Age integer [0, 99]
    @attribute Sex {Male, Female}
    @attribute Class {low, high}
    @inputs Age, Sex
    @outputs Class
    @data
    31, Male, low

``?`` and ``<null>`` are missing values. Without ``@outputs``, the output is the one attribute that
is not in ``@inputs``, if there is exactly one; without either it is the last attribute.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import polars as pl

from rankfold.data.read.columns import check_names
from rankfold.data.read.files import lines
from rankfold.data.read.reading import LINE, Reading
from rankfold.errors import UserError

MISSING = ("", "?", "<null>")
_COMMENT = "%"
HINT = "a KEEL file has lines @attribute NAME TYPE, then @data, then one row per line"
_ATTRIBUTE = re.compile(r"""@attribute\s+('[^']*'|"[^"]*"|[^\s{\[]+)\s*(.*)""", re.IGNORECASE)
_NOMINAL = re.compile(r"\{(.*)\}")
_NUMBER = re.compile(r"(integer|real|numeric)\b", re.IGNORECASE)
_BOUND = r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*"
_RANGE = re.compile(rf"\[{_BOUND},{_BOUND}\]", re.IGNORECASE)
_SLACK = 1e-6  # of the larger bound: bounds may be rounded


class Header(NamedTuple):
    """The header of a file."""

    names: tuple[str, ...]
    values: Mapping[str, tuple[str, ...]]  # of each nominal column, in the order of the file
    ranges: Mapping[str, tuple[float, float]]  # the range of each column of numbers that has one
    output: str | None  # None: there is none, or it is ambiguous
    used: tuple[str, ...]  # inputs and outputs


def looks_like_keel(path: Path) -> bool:
    """Whether the first line, blank lines and comments aside, is one of a KEEL header."""
    first = next((text for _, text in islice(_content_lines(path), 1)), "")
    return re.match(r"@(relation|attribute)\b", first, re.IGNORECASE) is not None


def read(path: Path, reading: Reading, output: str | None = None) -> tuple[Header, pl.DataFrame]:
    """The header and the rows, lines in ``LINE``; a row that violates the header is bad.

    ``output`` names the output, whatever the header says. Unlisted values of a nominal output are
    kept: the caller knows the grades.
    """
    numbered = _content_lines(path)
    header = _header(numbered, path.name, output)
    rows = list(_rows(numbered, len(header.names), path.name, reading))
    schema: dict[str, pl.DataType] = {LINE: pl.UInt32(), **dict.fromkeys(header.names, pl.String())}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    text = pl.col(header.names)
    frame = frame.with_columns(pl.when(~text.str.to_lowercase().is_in(MISSING)).then(text))
    return header, _conform(frame.select(LINE, *header.used), header, path.name, reading)


def row_lines(path: Path) -> list[int]:
    """The line of each row, including bad rows."""
    numbered = _content_lines(path)
    _header(numbered, path.name)
    return [number for number, _ in numbered]


def _content_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that are neither blank nor comments."""
    for number, line in lines(path):
        text = line.strip()
        if text and not text.startswith(_COMMENT):
            yield number, text


def _header(numbered: Iterable[tuple[int, str]], file: str, wanted: str | None = None) -> Header:
    kinds: list[tuple[str, str]] = []
    inputs: list[str] = []
    outputs: list[str] = []
    for number, text in numbered:
        word, rest = (*text.split(None, 1), "")[:2]
        word = word.lower()
        if match := _ATTRIBUTE.match(text):
            name, kind = _unquoted(match[1]), match[2].strip()
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
            raise UserError(f"{file}:{number} is not a line of a KEEL header", hint=HINT)
    else:
        raise UserError(f"{file} has no @data", hint=HINT)
    if wanted in [name for name, _ in kinds]:  # an unknown one is refused with the columns
        outputs = [str(wanted)]
    return _checked(kinds, inputs, outputs, file)


def _checked(
    kinds: list[tuple[str, str]], inputs: list[str], outputs: list[str], file: str
) -> Header:
    names = [name for name, _ in kinds]
    check_names(names, file)
    at_least = 1 if inputs else 2  # a file of new rows may have one input and no output
    if len(set(names)) < max(len(names), at_least):
        raise UserError(f"{file} has too few attributes, or repeated names", hint=HINT)
    for name in (*inputs, *outputs):
        if name not in names:
            raise UserError(f"{file} has no attribute {name!r}, which its header names", hint=HINT)
    if len(outputs) > 1:
        raise UserError(
            f"{file} has {len(outputs)} outputs: {', '.join(outputs)}",
            hint="expected one output, the grade",
        )
    left = [name for name in names if name not in inputs] if inputs else names[-1:]
    output = outputs[0] if outputs else left[0] if len(left) == 1 else None
    used = tuple(name for name in names if not inputs or name in inputs or name == output)
    nominal = ((name, _NOMINAL.fullmatch(kind)) for name, kind in kinds)
    values = {name: tuple(_listed(match[1])) for name, match in nominal if match}
    ranges = {
        name: (float(match[1]), float(match[2]))
        for name, kind in kinds
        if name not in values and (match := _RANGE.search(kind))
    }
    return Header(tuple(names), values, ranges, output, used)


def _rows(
    numbered: Iterable[tuple[int, str]], width: int, file: str, reading: Reading
) -> Iterator[list[int | str]]:
    for number, text in numbered:
        row = [value.strip() for value in text.split(",")]
        if len(row) == width:
            yield [number, *map(_unquoted, row)]
        else:
            reading.bad.add("a wrong number of columns", f"{file}:{number}")


def _conform(frame: pl.DataFrame, header: Header, file: str, reading: Reading) -> pl.DataFrame:
    """The rows that conform to the header, their numbers as Float64."""
    for name in header.used:
        for reason, violation in _violations(name, header):
            wrong = frame.select(violation.fill_null(value=False)).to_series()
            reading.bad.add_rows(reason, frame[LINE].filter(wrong), file)
            frame = frame.filter(~wrong)
    numbers = [name for name in header.used if name not in header.values]
    return frame.with_columns(pl.col(numbers).cast(pl.Float64))


def _violations(name: str, header: Header) -> Iterator[tuple[str, pl.Expr]]:
    """The ways in which a column may violate the header, and which rows do; null: no."""
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
        reason = f"a value of {name!r} outside [{low:g}, {high:g}]"
        yield reason, outside & number.is_not_nan()  # NaN is a missing value


def _listed(text: str) -> list[str]:
    return [_unquoted(word.strip()) for word in text.split(",") if word.strip()]


def _unquoted(word: str) -> str:
    quoted = len(word) > 1 and word[0] == word[-1] and word[0] in "'\""
    return word[1:-1] if quoted else word
