"""Documents with labels: one per row of a table, or one per line of a text.

In a table, one column holds the text and one the labels: a list, or a text with a separator. A
third column holds the keys of the documents. Without one, the rows are numbered from 0, including
unusable rows. A line is ``text TAB labels``, with spaces between labels.

Documents are the queries, labels the candidates. A document without labels is kept, without pairs.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import polars as pl

from rankfold.data.read import in_memory, record_reader
from rankfold.data.read.columns import (
    NONE,
    check_repeated,
    choose,
    find_usual,
    listing,
    repeats,
)
from rankfold.data.read.files import base_suffix
from rankfold.data.read.keyed_tables import (
    USUAL_NAMES,
    as_words,
    is_separated,
    line_numbers,
    numbered_lines,
)
from rankfold.data.read.reading import LINE, ROWS_SHOWN, Reading, Taken
from rankfold.data.read.results import Documents, TextTable
from rankfold.data.read.tables import collect, holds_parquet, read_named, row_lines
from rankfold.data.read.values import (
    TEXT_TYPES,
    canonical,
    check_distinct,
    concat_frames,
    keys_of,
    row_numbers,
)
from rankfold.errors import UserError

_LABEL_SEPARATORS = "|;,"  # besides white space
_OBJECTS_SAMPLED = 1000  # of a file of JSON lines, for the names of its columns
Chosen = tuple[str | None, str, str]  # the columns of keys, if there is one, texts and labels
_NUMBER = "number"  # the column of rows without keys: first their lines, then their numbers


class DocumentColumns(NamedTuple):
    """The columns of documents; None: guess it from the names, ``none``: use no column."""

    key: str | None = None
    text: str | None = None
    labels: str | None = None


def read_documents(
    items: Sequence[tuple[Any, int | None]],
    columns: DocumentColumns,
    reading: Reading,
    *,
    separator: str | None = None,
    header: bool,
) -> Documents:
    """The documents of files or tables in memory, each with its split, if given.

    ``separator`` is the mark between labels; None: detect it.
    """
    if not items:
        raise UserError("there is nothing to read", hint="name a file of documents")
    parts: list[pl.DataFrame] = []
    names = [item.name if isinstance(item, Path) else "the table" for item, _ in items]
    n_read = 0
    for number, (name, (item, split)) in enumerate(zip(names, items, strict=True)):
        reading.progress(f"reading {name}", number / len(items))
        n_bad = reading.bad.total
        frame = _read(item, name, columns, reading, header=header)
        n_bad = reading.bad.total - n_bad
        if _NUMBER in frame.columns:
            all_lines = _row_lines(frame, item, n_bad, reading, header=header, columns=columns)
            numbers = row_numbers(frame[_NUMBER], all_lines) + n_read
            frame = frame.with_columns(numbers.alias(_NUMBER))
            n_read += len(all_lines)
        if len(frame) == 0:
            raise UserError(f"{name} has no documents", hint=reading.bad.hint())
        parts.append(frame.with_columns(split=pl.lit(split, pl.UInt8)))
    documents = _stack(parts, separator)
    return _pair(documents, " and ".join(dict.fromkeys(names)), given=items[0][1] is not None)


# ---------------------------------------------------------------------------------- assembling


def _stack(parts: Sequence[pl.DataFrame], separator: str | None) -> pl.DataFrame:
    """All documents, their labels as lists; keys of different types become text."""
    listed = None if separator else _detect_lists(parts)
    mark = separator or _detect_separator(parts)
    if len({_NUMBER in part.columns for part in parts}) > 1:
        raise UserError(
            "some of the files have a key column, others have none",
            hint="use the same name in all files, or --query-column none",
        )
    text = pl.col("labels").str
    split = text.split(mark) if mark else text.extract_all(r"\S+")
    if listed is not None:
        split = text.extract_all(listed).list.eval(pl.element().str.strip_chars(" <>[]'\""))
    frames = [p.with_columns(split) if p["labels"].dtype == pl.String else p for p in parts]
    return concat_frames(frames).rename({_NUMBER: "key"}, strict=False)


_LISTS = {  # how every text of labels is written, and how each label is
    r"^(<[^<>]+>)+$": r"<[^<>]+>",  # <a><b>
    r"^\[[^\[\]]*\]$": r"'[^']*'|\"[^\"]*\"|[^\[\],'\"]+",  # ['a', "b"]
}


def _detect_lists(parts: Sequence[pl.DataFrame]) -> str | None:
    """The pattern of a label, where all labels of a column are between such marks."""
    texts = [
        part["labels"].str.strip_chars() for part in parts if part["labels"].dtype == pl.String
    ]
    filled = [text.filter(text.is_not_null() & (text != "")) for text in texts]
    if not any(map(len, filled)):
        return None
    fits = (one for one in _LISTS if all(text.str.contains(one).all() for text in filled))
    return next((_LISTS[pattern] for pattern in fits), None)


def _detect_separator(parts: Sequence[pl.DataFrame]) -> str | None:
    """The first of ``_LABEL_SEPARATORS`` that occurs; None: white space."""
    texts = [part["labels"].str for part in parts if part["labels"].dtype == pl.String]
    occur = (m for m in _LABEL_SEPARATORS if any(t.contains(m, literal=True).any() for t in texts))
    return next(occur, None)


def _pair(documents: pl.DataFrame, name: str, *, given: bool) -> Documents:
    hint = "a document is one row; for rows of pairs, use --format table with --query-texts"
    check_distinct(documents["key"], f"{name} has the document", hint)
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


def _read(
    item: Any, name: str, columns: DocumentColumns, reading: Reading, *, header: bool
) -> pl.DataFrame:
    """Columns ``text``, ``labels`` (lists or text) and ``key`` or, without keys, the line."""
    if not isinstance(item, Path):
        return _select(collect(in_memory.to_frame(item), name), name, columns, reading)
    if item.is_dir() and not holds_parquet(item):
        xc = f"rankfold prepare --format xc {quote(str(item))} --out DATA"
        raise UserError(
            f"{item} is a folder", hint=f"name its files; for a folder of the XC repository: {xc}"
        )
    if base_suffix(item) in record_reader.JSON_LINES:
        return _read_json(item, columns, reading)
    if _holds_lines(item, columns, header=header):
        schema = {_NUMBER: pl.Int64(), "text": pl.String(), "labels": pl.List(pl.String)}
        return pl.DataFrame(list(_lines(item, reading)), schema, orient="row")
    return _select(read_named(item, reading), name, columns, reading)


def _row_lines(
    frame: pl.DataFrame,
    item: Any,
    n_bad: int,
    reading: Reading,
    *,
    header: bool,
    columns: DocumentColumns,
) -> Sequence[int] | pl.Series:
    """The lines of all rows of an input, including unusable rows."""
    if isinstance(item, Path):
        is_json = base_suffix(item) in record_reader.JSON_LINES
        if not is_json and _holds_lines(item, columns, header=header):
            return line_numbers(item)
        if n_bad:
            return row_lines(item, reading)
    return frame[_NUMBER]


def _holds_lines(path: Path, columns: DocumentColumns, *, header: bool) -> bool:
    """Whether a text holds lines, not a table: no header, or a .txt that names no columns."""
    if base_suffix(path) not in (".txt", ""):
        return not header and is_separated(path)
    names = next(record_reader.raw_lines(path), "").strip().split("\t")
    named = {columns.text, columns.labels} & set(names)
    usual = all(find_usual(USUAL_NAMES[role], names) for role in ("text", "labels"))
    return not header or not (named or usual)


def _lines(path: Path, reading: Reading) -> Iterator[tuple[int, str, list[str]]]:
    for number, line in numbered_lines(path):
        text, tab, labels = line.rstrip("\r\n").rpartition("\t")
        if not line.strip():
            continue
        if not tab:
            reading.bad.add("no tab between text and labels", f"{path.name}:{number}")
        elif not record_reader.is_decoded(line):
            reading.bad.add(record_reader.NOT_UTF8, f"{path.name}:{number}")
        else:
            yield number, text, labels.split()


def _read_json(path: Path, columns: DocumentColumns, reading: Reading) -> pl.DataFrame:
    """JSON lines. They are read here so that lists stay lists, even beside damaged lines."""
    first = (
        record for _, record in islice(record_reader.objects(path), _OBJECTS_SAMPLED) if record
    )
    names = list(dict.fromkeys(name for record in first for name in record))
    if not names:
        raise UserError(f"{path.name} holds no JSON object", hint="write one object per line")
    key, text, labels = chosen = _choose(names, columns, path.name)
    rows = list(_json_rows(path, chosen, reading))
    types: dict[str, pl.DataType] = {LINE: pl.Int64(), text: pl.String()}
    if key is not None:
        types[key] = pl.String()
    lists = any(isinstance(row[-1], list) for row in rows)
    types[labels] = pl.List(pl.String) if lists else pl.String()
    if lists:  # a text among lists is one label
        rows = [(*row, [last] if isinstance(last, str) else last) for *row, last in rows]
    return _select(pl.DataFrame(rows, types, orient="row"), path.name, columns, reading)


def _json_rows(path: Path, chosen: Chosen, reading: Reading) -> Iterator[tuple[Any, ...]]:
    key_column, text_column, label_column = chosen
    for line, record in record_reader.objects(path):
        if record is None:
            reading.bad.add("no JSON object", f"{path.name}:{line}")
            continue
        key = [] if key_column is None else [record_reader.as_text(record.get(key_column))]
        text, given = record_reader.as_text(record.get(text_column)), record.get(label_column)
        labels: Any
        if isinstance(given, list):
            flat = labels = [record_reader.as_text(label) for label in given if label is not None]
        else:
            labels = record_reader.as_text(given)
            flat = [labels if given is not None else ""]
        if any(label is None for label in flat):
            reading.bad.add("labels that are neither text nor numbers", f"{path.name}:{line}")
        elif not all(record_reader.is_decoded(value) for value in (*key, text, *flat) if value):
            reading.bad.add(record_reader.NOT_UTF8, f"{path.name}:{line}")
        else:
            yield line, text, *key, labels


# ---------------------------------------------------------------------------------- columns


def _select(
    frame: pl.DataFrame, name: str, columns: DocumentColumns, reading: Reading
) -> pl.DataFrame:
    """The chosen columns by role; rows with a missing key are recorded and dropped."""
    names = [column for column in frame.columns if column != LINE]
    key, text, labels = _choose(names, columns, name)
    check_repeated((text, *([key] if key else [])), names, name)
    if more := repeats(labels, names):
        filled = pl.concat_list(labels, *more).list.eval(pl.element().filter(pl.element() != ""))
        frame = frame.with_columns(filled).drop(more)
        names = [column for column in names if column not in more]
    reading.columns.setdefault("candidate", labels)
    roles = {"key": key, "text": text, "labels": labels}
    reading.taken.append(Taken.of(name, names, roles, frame.head(ROWS_SHOWN)))
    selected = {"text": as_words(frame[text], name), "labels": _label_lists(frame[labels], name)}
    if key is None:
        return pl.DataFrame({_NUMBER: frame[LINE], **selected})
    reading.columns.setdefault("query", key)
    selected["key"] = keys_of(frame, key, name)
    missing = frame[LINE].filter(selected["key"].is_null())
    reading.bad.add_rows("a missing query", missing, name)
    return pl.DataFrame(selected).drop_nulls("key")


def _choose(names: Sequence[str], columns: DocumentColumns, table: str) -> Chosen:
    """The columns named, else those with a usual name, else the only one left."""
    wanted = {"text": columns.text, "labels": columns.labels, "key": columns.key}
    chosen = choose(names, wanted, USUAL_NAMES, table)
    options = {"text": "--text-column", "labels": "--candidate-column"}
    for role in options:
        free = [name for name in names if name not in chosen.values()]
        chosen[role] = chosen[role] or (free[0] if len(free) == 1 else None)
    missing = [role for role in options if chosen[role] in (None, NONE)]
    if missing:
        raise UserError(
            f"cannot tell which column of {table} holds the {' and which the '.join(missing)}",
            hint=f"{listing(names)}; use "
            + " and ".join(f"{options[role]} NAME" for role in missing)
            + ", or --no-header for lines text TAB labels",
        )
    key = None if chosen["key"] == NONE else chosen["key"]
    return key, str(chosen["text"]), str(chosen["labels"])


def _label_lists(column: pl.Series, table: str) -> pl.Series:
    """A column of labels: lists of text, or text that is not yet split."""
    if isinstance(column.dtype, pl.Array):
        column = column.arr.to_list()
    inner = column.dtype.inner if isinstance(column.dtype, pl.List) else column.dtype
    if not (inner in (*TEXT_TYPES, pl.Null) or inner.is_integer()):
        raise UserError(
            f"column {column.name!r} of {table} holds {column.dtype}, not labels",
            hint="labels are text, or lists of text or whole numbers; use --candidate-column NAME",
        )
    return column.cast(pl.List(pl.String) if isinstance(column.dtype, pl.List) else pl.String)
