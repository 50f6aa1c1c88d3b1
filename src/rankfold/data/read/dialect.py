"""How text tables are written: encoding, separator, decimal mark, missing values, times."""

import codecs
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import polars as pl

from rankfold import storage
from rankfold.data.read.files import base_suffix, lines, open_binary
from rankfold.data.read.values import TEXT_TYPES, plain_number
from rankfold.errors import UserError

_ERRORS = ("#N/A", "#N/D", "#NV")  # of spreadsheets
MISSING = ("", "NULL", "null", "NA", "N/A", "n/a", "<NA>", "NaN", "nan", "None", "\\N", *_ERRORS)
SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_LINES_COMPARED = 10  # to detect the separator
_BINARY = (".parquet", ".arrow", ".ipc", ".feather", ".npz", ".zip")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How text tables are written. The defaults are detected or usual."""

    separator: str | None = None  # None: detected
    decimal: str = "."
    missing: Sequence[str] | None = None  # words for no value; None: ``MISSING``, in keys only
    time_format: str | None = None  # None: guessed

    @property
    def missing_keys(self) -> Sequence[str]:
        """The words that stand for a missing key."""
        return MISSING if self.missing is None else self.missing

    def plain(self, frame: pl.DataFrame) -> pl.DataFrame:
        """A table of text with decimal points, and null for the words given as ``missing``."""
        text = [column.name for column in frame if column.dtype in TEXT_TYPES]
        if self.missing is not None:
            plain = pl.col(text).cast(pl.String).str.strip_chars()
            hidden = plain.is_in(words_of(self.missing))
            frame = frame.with_columns(pl.when(~hidden).then(pl.col(text)))
        if self.decimal == ",":
            column = pl.col(text).cast(pl.String)
            plain = plain_number(column, ",")
            is_number = plain.cast(pl.Float64, strict=False).is_not_null()
            is_missing = column.is_null() | column.str.strip_chars().is_in(words_of(MISSING))
            marked = column.str.contains(r"[,€$£¥%]")  # so 1.234 in a column of keys stays
            ((*fit,),) = frame.select((is_number | is_missing).all()).rows() if text else [()]
            ((*some,),) = frame.select((is_number & marked).any()).rows() if text else [()]
            names = [name for name, *yes in zip(text, fit, some, strict=True) if all(yes)]
            frame = frame.with_columns(plain_number(pl.col(names).cast(pl.String), ","))
        return frame


DEFAULT_DIALECT = Dialect()


def words_of(words: Sequence[str]) -> pl.Series:
    """Words for ``is_in``."""
    return pl.Series([*words], dtype=pl.String).implode()


def check_encoding(name: str) -> None:
    """A UserError for an unknown encoding."""
    try:
        "".encode(name)  # refuses codecs that are not of text, such as bz2
    except (LookupError, ValueError):
        raise UserError(
            f"there is no encoding {name!r}", hint="usual ones: utf-8, latin-1, cp1252, utf-16"
        ) from None


def decoded(path: Path, encoding: str | None, scratch: Path) -> Path:
    """The file in UTF-8: itself, or a copy of the same name. Binary files stay as they are.

    So does a text that begins with the mark of UTF-8: Excel writes it, whatever the other files.
    """
    if encoding is None or path.is_dir() or base_suffix(path) in _BINARY:
        return path
    with open_binary(path) as text:
        if text.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8:
            return path
    folder = scratch / f"decoded-{len(list(scratch.iterdir()))}"
    folder.mkdir()
    copy = folder / path.name
    try:
        with (
            codecs.getreader(encoding)(open_binary(path)) as text,
            copy.open("w", encoding="utf-8", newline="") as file,
        ):
            shutil.copyfileobj(text, file, 2**20)
    except UnicodeError as error:
        if storage.is_full(error):
            raise
        raise UserError(
            f"{path.name} is not {encoding} text: {error}", hint="name another --encoding"
        ) from None
    return copy


def detect_separator(path: Path) -> str:
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
    if usual and (counts[usual][0] or _has_title(counts, usual)):
        steady = [mark for mark in ",\t;|" if counts[mark][0] and len(set(counts[mark])) == 1]
        if usual in steady or not steady:
            return usual
        return max(steady, key=lambda mark: counts[mark][0])
    return max(counts, key=lambda mark: (mark != " " and counts[mark][0] > 0, counts[mark][0]))


def _has_title(counts: Mapping[str, Sequence[int]], usual: str) -> bool:
    """Whether the suffix's separator is in every line but the first, and nothing else fits."""
    steady = any(marks[0] and len({*marks}) == 1 for marks in counts.values())
    return len(counts[usual]) > 2 and all(counts[usual][1:]) and not steady


_QUOTED = re.compile(r'(?<![^,\t;| \n])"(?:[^"]|"")*+(?:"|$)')  # at the beginning of a field
