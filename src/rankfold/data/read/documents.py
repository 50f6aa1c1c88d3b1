"""Documents with their labels: one per row of a table, or one per line of a text.

In a table, one column holds the text and one the labels: a list, or a text with a mark between any
two. A third column holds the keys of the documents; without one, the rows are counted from 0, those
that cannot be used too. A line is ``text TAB labels``, with spaces between labels.

Documents are the queries, labels the candidates. A document without labels is kept: it has no pair.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import polars as pl

from rankfold.data.build import features
from rankfold.data.build.pairs import canonical
from rankfold.data.read import memory, record_reader
from rankfold.data.read.files import LINE, BadRows, Reading, base_suffix, expand
from rankfold.data.read.tables import (
    NONE,
    collect,
    keys_of,
    listing,
    named,
    read_columns,
    row_lines,
)
from rankfold.errors import UserError
from rankfold.types import Texts, Vocabulary

MARKS = "|;,"  # what may part labels, besides white space
OBJECTS_LOOKED_AT = 1000  # of a file of JSON lines, for the names of its columns
NOT_TEXT = "bytes that are not UTF-8"
NUMBER = "number"  # the column of rows that have no keys: first their lines, then their numbers
USUAL_NAMES = {
    "text": "text title sentence abstract content body description name words",
    "labels": "labels tags subjects categories classes targets target_ind candidates label tag "
    "subject category class target candidate",
    "key": "key id uid query document_id doc_id docid",
}
KEYS = f"{USUAL_NAMES['labels']} {USUAL_NAMES['key']}"
OPTIONS = {"key": "--query-column", "text": "--text-column", "labels": "--candidate-column"}


@dataclass(frozen=True, slots=True)
class TextTable:
    """What is written of one side, by key: words, or bags of tokens, or the keys alone."""

    name: str
    keys: pl.Series  # Int64 or text, none missing, none twice
    words: pl.Series | None = None  # String, null where there is none
    bags: Texts | None = None
    n_tokens: int = 0  # every token of the bags is below it
    bad: BadRows = field(default_factory=BadRows)  # rows that were left out

    @property
    def says_something(self) -> bool:
        return self.words is not None or self.bags is not None

    def with_keys(self, keys: pl.Series) -> TextTable:
        """The same with words for none of the other ``keys``, of which it has to have some."""
        assert self.words is not None
        features.check_common(self, Vocabulary(len(keys), lambda: keys))
        if self.keys.dtype != keys.dtype:
            odd = next(key for key in self.keys if not str(key).isdecimal())
            hint = "labels are numbered there, from 0"
            raise UserError(
                f"{self.name} has the key {odd!r}, the labels have none such", hint=hint
            )
        more = keys.filter(~keys.is_in(self.keys.implode()))
        words = self.words.extend_constant(None, len(more))
        return replace(self, keys=pl.concat([self.keys, more]), words=words)


@dataclass(frozen=True, slots=True)
class Documents:
    """Pairs of documents and labels, and what is written of either."""

    pairs: pl.LazyFrame  # query, candidate[, grade][, split]
    tables: Mapping[str, TextTable]  # by side; each of their keys gets a row
    excluded: pl.DataFrame | None = None  # query, candidate: never returned, and no pairs


class Asked(NamedTuple):
    """The columns to read, None where they are to be guessed; and what stands between labels."""

    key: str | None = None
    text: str | None = None
    labels: str | None = None
    separator: str | None = None


def read_documents(
    items: Sequence[tuple[Any, int | None]], asked: Asked, reading: Reading, *, header: bool
) -> Documents:
    """The documents of some files or tables in memory, each with the split that it is, if given."""
    if not items:
        raise UserError("there is nothing to read", hint="name a file of documents")
    parts: list[pl.DataFrame] = []
    names = [item.name if isinstance(item, Path) else "the table" for item, _ in items]
    n_read = 0
    for number, (name, (item, split)) in enumerate(zip(names, items, strict=True)):
        reading.progress(f"reading {name}", number / len(items))
        n_bad = reading.bad.total
        frame = _read(item, name, asked, reading, header=header)
        n_bad = reading.bad.total - n_bad
        if NUMBER in frame.columns:
            every = _row_lines(item, n_bad, header=header, asked=asked)
            frame, n_rows = _numbered(frame, every, n_read)
            n_read += n_rows
        if len(frame) == 0:
            why = "; ".join(reading.bad.describe())
            raise UserError(f"{name} has no documents", hint=why or "is it the right file?")
        parts.append(frame.with_columns(split=pl.lit(split, pl.UInt8)))
    documents = _stacked(parts, asked.separator)
    return _paired(documents, " and ".join(dict.fromkeys(names)), given=items[0][1] is not None)


def open_texts(
    table: Any, usual: str | None, text_column: str | None, *, header: bool = True
) -> TextTable:
    """A table of keys and texts, the keys as in a table of features; or lines ``key TAB text``.

    It may be one of several, so that it need not have ``text_column``.
    """
    features.check_source(table, "texts")
    if isinstance(table, str | Path):
        (path,) = expand([table])
        if _holds_keyed_lines(path, {usual, text_column}, header=header):
            return _keyed_lines(path)
    found = features.open_table(table, usual=usual, what="texts")
    return as_texts(found, text_column if text_column in found.values.columns else None)


def as_texts(table: features.Table, text_column: str | None) -> TextTable:
    """The texts of a table: the column asked for, else one with a usual name, else the only one."""
    names = table.values.columns
    if text_column is not None and text_column not in names:
        hint = f"{listing(names)} beside the keys; use --text-column NAME"
        raise UserError(f"{table.name} has no column {text_column!r}", hint=hint)
    column = text_column or named(USUAL_NAMES["text"], names)
    if column is None and len(names) == 1:
        column = names[0]
    if column is None:
        raise UserError(
            f"cannot tell which column of {table.name} holds the text",
            hint=f"{listing(names)} beside the keys; use --text-column NAME",
        )
    words = words_of(table.values[column], table.name)
    return TextTable(table.name, table.keys, words, bad=table.bad)


# ---------------------------------------------------------------------------------- assembling


def _stacked(parts: Sequence[pl.DataFrame], separator: str | None) -> pl.DataFrame:
    """All documents, their labels as lists; keys of unlike types become text."""
    written = [part["labels"] for part in parts if part["labels"].dtype == pl.String]
    mark = separator or next(
        (mark for mark in MARKS if any(w.str.contains(mark, literal=True).any() for w in written)),
        None,
    )
    if len({NUMBER in part.columns for part in parts}) > 1:
        raise UserError(
            "some of the files have keys of documents, others have none",
            hint="name their column alike in all, or use --query-column none",
        )
    alike = [part.with_columns(labels=_listed(part["labels"], mark)) for part in parts]
    if NUMBER in alike[0].columns:
        return pl.concat(alike).rename({NUMBER: "key"})
    if len({part["key"].dtype for part in parts}) > 1:
        alike = [part.with_columns(pl.col("key").cast(pl.String)) for part in alike]
    return pl.concat(alike)


def _numbered(frame: pl.DataFrame, every: pl.Series | None, first: int) -> tuple[pl.DataFrame, int]:
    """The rows by their numbers from ``first`` on instead of their lines; and of how many.

    ``every`` are the lines of all rows, those that cannot be used too; None: there are no others.
    """
    lines = frame[NUMBER].cast(pl.Int64)
    numbers = pl.int_range(len(lines), eager=True) if every is None else every.search_sorted(lines)
    found = frame.with_columns((numbers.cast(pl.Int64) + first).alias(NUMBER))
    return found, len(lines) if every is None else len(every)


def _listed(labels: pl.Series, mark: str | None) -> pl.Series:
    """Labels as lists of text: parted by a mark or, without one, by white space."""
    if labels.dtype != pl.String:
        return labels
    return labels.str.split(mark) if mark else labels.str.extract_all(r"\S+")


def _paired(documents: pl.DataFrame, name: str, *, given: bool) -> Documents:
    again = documents["key"].filter(documents["key"].is_duplicated())
    if len(again):
        raise UserError(
            f"{name} has the document {again[0]!r} more than once",
            hint="a document is one row; if rows are pairs, use --format table with --query-texts",
        )
    if not documents["labels"].list.len().sum():
        raise UserError(f"no document of {name} has a label", hint="is it the right column?")
    label = pl.col("candidate").str.strip_chars()
    pairs = (
        documents.lazy()
        .select("split", query="key", candidate="labels")
        .explode("candidate")
        .with_columns(candidate=label)
        .filter(pl.col("candidate") != "")
    )
    table = TextTable(name, canonical(documents["key"]), documents["text"])
    return Documents(pairs if given else pairs.drop("split"), {"query": table})


# ---------------------------------------------------------------------------------- files


def _read(item: Any, name: str, asked: Asked, reading: Reading, *, header: bool) -> pl.DataFrame:
    """Columns ``text``, ``labels`` (lists, or text) and ``key``; without keys, the row's line."""
    if not isinstance(item, Path):
        return _columns(collect(memory.to_frame(item), name), name, asked, reading)
    if item.is_dir():
        xc = f"rankfold prepare --format xc {quote(str(item))} --out DATA"
        raise UserError(
            f"{item} is a folder",
            hint=f"name its files; if it is one of the XC repository: {xc}",
        )
    if base_suffix(item) in record_reader.JSON_LINES:
        return _read_json(item, asked, reading)
    if _holds_lines(item, asked, header=header):
        columns = {NUMBER: pl.Int64(), "text": pl.String(), "labels": pl.List(pl.String)}
        return pl.DataFrame(list(_lines(item, reading)), columns, orient="row")
    return _columns(read_columns(item, reading), name, asked, reading)


def _row_lines(item: Any, n_bad: int, *, header: bool, asked: Asked) -> pl.Series | None:
    """The lines of all rows of an input, where others than those that were read are among them."""
    if not isinstance(item, Path):
        return None
    is_table = base_suffix(item) in record_reader.JSON_LINES or not _holds_lines(
        item, asked, header=header
    )
    if is_table and n_bad == 0:
        return None
    return pl.Series(row_lines(item) if is_table else line_numbers(item), dtype=pl.Int64)


def _is_separated(path: Path) -> bool:
    return base_suffix(path) in (".tsv", ".tab", ".csv")


def _holds_lines(path: Path, asked: Asked, *, header: bool) -> bool:
    """Whether a text is one of lines: it has no header, or is a .txt that names no columns."""
    if base_suffix(path) not in (".txt", ""):
        return not header and _is_separated(path)
    names = next(record_reader.raw_lines(path), "").strip().split("\t")
    asked_for = {asked.text, asked.labels} & set(names)
    usual = all(named(USUAL_NAMES[role], names) for role in ("text", "labels"))
    return not header or not (asked_for or usual)


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text, from 1 on; one of two or four bytes a letter is refused."""
    for number, line in enumerate(record_reader.raw_lines(path), start=1):
        if number == 1 and "\0" in line:
            raise record_reader.not_text(path)
        yield number, line


def line_numbers(path: Path) -> list[int]:
    return [number for number, _ in numbered_lines(path)]


def _lines(path: Path, reading: Reading) -> Iterator[tuple[int, str, list[str]]]:
    for number, line in numbered_lines(path):
        text, tab, labels = line.rstrip("\r\n").rpartition("\t")
        if not line.strip():
            continue
        if not tab:
            reading.bad.add("no tab between text and labels", f"{path.name}:{number}")
        elif not record_reader.is_decoded(line):
            reading.bad.add(NOT_TEXT, f"{path.name}:{number}")
        else:
            yield number, text, labels.split()


def _holds_keyed_lines(path: Path, asked: Set[str | None], *, header: bool) -> bool:
    """The same of lines ``key TAB text``, but that a first line of usual names is always a header.

    It may be the other file, of pairs or documents, that has none.
    """
    if base_suffix(path) not in (".txt", "") and (header or not _is_separated(path)):
        return False
    first = next((line for line in record_reader.raw_lines(path) if line.strip()), "")
    mark = "\t" if "\t" in first else max(",;|", key=first.count)
    names = [name.strip(' "\r\n') for name in first.split(mark)]
    usual = named(KEYS, names[:1]) or named(USUAL_NAMES["text"], names[1:])
    return names[0].isdecimal() or not (usual or asked & set(names))


def _keyed_lines(path: Path) -> TextTable:
    bad, rows = BadRows(), []
    for number, line in numbered_lines(path):
        key, tab, text = line.rstrip("\r\n").partition("\t")
        if not line.strip():
            continue
        if not record_reader.is_decoded(line):
            bad.add(NOT_TEXT, f"{path.name}:{number}")
        elif not tab:
            bad.add("no tab between key and text", f"{path.name}:{number}")
        elif not key.strip():
            bad.add("a missing key", f"{path.name}:{number}")
        else:
            rows.append((key.strip(), text))
    if not rows:
        why = [*bad.describe(), "if its first line names the columns, use --text-column NAME"]
        raise UserError(f"{path.name} has no usable rows", hint="; ".join(why))
    frame = pl.DataFrame(rows, {"key": pl.String, "text": pl.String}, orient="row")
    again = frame["key"].filter(frame["key"].is_duplicated())
    if len(again):
        raise UserError(
            f"{path.name} has the key {again[0]!r} more than once",
            hint="it has to have one line per key: key TAB text",
        )
    words = words_of(frame["text"], path.name)
    return TextTable(path.name, canonical(frame["key"]), words, bad=bad)


def _read_json(path: Path, asked: Asked, reading: Reading) -> pl.DataFrame:
    """JSON lines; read here since lists have to stay lists, also beside lines that are damaged."""
    first = (
        record for _, record in islice(record_reader.objects(path), OBJECTS_LOOKED_AT) if record
    )
    names = list(dict.fromkeys(name for record in first for name in record))
    if not names:
        raise UserError(f"{path.name} holds no JSON object", hint="write one object per line")
    chosen = _choose(names, asked, path.name)
    rows = list(_json_rows(path, chosen, reading))
    types: dict[str, pl.DataType] = {LINE: pl.Int64(), chosen.text: pl.String()}
    if chosen.key is not None:
        types[chosen.key] = pl.String()
    lists = any(isinstance(row[-1], list) for row in rows)
    types[chosen.labels] = pl.List(pl.String) if lists else pl.String()
    if lists:  # a text among lists is one label
        rows = [(*row, [last] if isinstance(last, str) else last) for *row, last in rows]
    return _columns(pl.DataFrame(rows, types, orient="row"), path.name, asked, reading)


def _json_rows(path: Path, chosen: Chosen, reading: Reading) -> Iterator[tuple[Any, ...]]:
    for line, record in record_reader.objects(path):
        if record is None:
            reading.bad.add("no JSON object", f"{path.name}:{line}")
            continue
        key = [] if chosen.key is None else [record_reader.as_text(record.get(chosen.key))]
        text, given = record_reader.as_text(record.get(chosen.text)), record.get(chosen.labels)
        labels: Any
        if isinstance(given, list):
            flat = labels = [record_reader.as_text(label) for label in given if label is not None]
        else:
            labels = record_reader.as_text(given)
            flat = [labels if given is not None else ""]
        if any(label is None for label in flat):
            reading.bad.add("labels that are neither text nor numbers", f"{path.name}:{line}")
        elif not all(record_reader.is_decoded(value) for value in (*key, text, *flat) if value):
            reading.bad.add(NOT_TEXT, f"{path.name}:{line}")
        else:
            yield line, text, *key, labels


# ---------------------------------------------------------------------------------- columns


class Chosen(NamedTuple):
    """The columns of one table."""

    key: str | None
    text: str
    labels: str


def _columns(frame: pl.DataFrame, name: str, asked: Asked, reading: Reading) -> pl.DataFrame:
    chosen = _choose([column for column in frame.columns if column != LINE], asked, name)
    reading.columns.setdefault("candidate", chosen.labels)
    columns = {
        "text": words_of(frame[chosen.text], name),
        "labels": _label_lists(frame[chosen.labels], name),
    }
    if chosen.key is None:
        return pl.DataFrame({NUMBER: frame[LINE], **columns})
    reading.columns.setdefault("query", chosen.key)
    columns["key"] = keys_of(frame, chosen.key, name)
    for line in frame[LINE].filter(columns["key"].is_null()):
        reading.bad.add("a missing query", f"{name}:{line}")
    return pl.DataFrame(columns).drop_nulls("key")


def _choose(names: Sequence[str], asked: Asked, table: str) -> Chosen:
    """The columns asked for, else those with a usual name; of two, the other one is known."""
    found: dict[str, str | None] = {}
    for role, option in OPTIONS.items():
        wanted = getattr(asked, role)
        if wanted is not None and wanted not in (NONE, *names):
            hint = f"{listing(names)}; use {option} NAME"
            raise UserError(f"{table} has no column {wanted!r}", hint=hint)
        found[role] = wanted
    for role in ("text", "labels", "key"):
        free = [name for name in names if name not in found.values()]
        found[role] = found[role] or named(USUAL_NAMES[role], free)
    for role in ("text", "labels"):
        free = [name for name in names if name not in found.values()]
        found[role] = found[role] or (free[0] if len(free) == 1 else None)
        if found[role] in (None, NONE):
            raise UserError(
                f"cannot tell which column of {table} holds the {role}",
                hint=f"{listing(names)}; use {OPTIONS[role]} NAME, or --no-header where lines are "
                "text TAB labels",
            )
    key = None if found["key"] == NONE else found["key"]
    return Chosen(key, str(found["text"]), str(found["labels"]))


def words_of(column: pl.Series, table: str) -> pl.Series:
    """A column of text; what is empty is null."""
    if column.dtype not in (*features.TEXT, pl.Null) and not column.dtype.is_numeric():
        raise UserError(
            f"column {column.name!r} of {table} holds {column.dtype}, not text",
            hint="use --text-column NAME",
        )
    text = column.cast(pl.String)
    return pl.select(pl.when(text != "").then(text)).to_series()


def _label_lists(column: pl.Series, table: str) -> pl.Series:
    """A column of labels: lists of text, or text that is still to be parted."""
    if isinstance(column.dtype, pl.Array):
        column = column.arr.to_list()
    inner = column.dtype.inner if isinstance(column.dtype, pl.List) else column.dtype
    if not (inner in (*features.TEXT, pl.Null) or inner.is_integer()):
        raise UserError(
            f"column {column.name!r} of {table} holds {column.dtype}, not labels",
            hint="labels are lists of text or of whole numbers, or text; use --candidate-column",
        )
    return column.cast(pl.List(pl.String) if isinstance(column.dtype, pl.List) else pl.String)
