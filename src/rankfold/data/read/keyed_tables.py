"""Tables with one row per key: of features, or of texts, which may be lines ``key TAB text``.

The columns are kept as they were read. ``build.features`` turns them into features.
"""

from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import Any

import polars as pl

from rankfold import storage
from rankfold.data.read import in_memory, record_reader
from rankfold.data.read.bad_rows import BadRows
from rankfold.data.read.columns import find_usual, listing
from rankfold.data.read.dialect import DEFAULT_DIALECT, Dialect
from rankfold.data.read.files import base_suffix, expand
from rankfold.data.read.reading import LINE, Reading
from rankfold.data.read.results import KeyedTable, TextTable
from rankfold.data.read.tables import collect, holds_parquet, is_text, read_columns
from rankfold.data.read.values import TEXT_TYPES, canonical, check_distinct, keys_of, text_columns
from rankfold.errors import UserError
from rankfold.types import Columns

USUAL_NAMES = {
    "text": "text title sentence abstract content body description name words",
    "labels": "labels tags subjects categories classes targets target_ind candidates label tag "
    "subject category class target candidate",
    "key": "key id uid query document_id doc_id docid",
}
FEATURES = "features"
ACCEPTED = "pass a path, or a polars, pandas or Arrow table"


def open_table(
    table: Any,
    key_column: str | None = None,
    *,
    usual: str | None = None,
    like: Columns | None = None,
    what: str = FEATURES,
    dialect: Dialect = DEFAULT_DIALECT,
) -> KeyedTable:
    """Read a table by key.

    The column of keys is ``key_column``, else ``usual``, its name elsewhere, else the first that is
    not in ``like``. ``what`` says what the other columns hold, for messages.
    """
    check_source(table, what)
    with storage.scratch() as scratch:
        reading = Reading(scratch, dialect=dialect)
        if isinstance(table, str | Path):
            (path,) = expand([table])
            name, frame, typed = path.name, read_columns(path, reading), not is_text(path)
        else:
            name = f"the table of {what}"
            frame, typed = collect(in_memory.to_frame(table), name), True
    names = [column for column in frame.columns if column != LINE]
    taken = () if like is None else (*like.numbers, *like.levels)
    column = _key_column(names, key_column, usual, taken, name)
    keys = keys_of(frame, column, name)
    reading.bad.add_rows("a missing key", frame[LINE].filter(keys.is_null()), name)
    if len(names) == 1:
        raise UserError(f"{name} has no column of {what}", hint="it has a column of keys only")
    values = frame.filter(keys.is_not_null()).drop(LINE, column)
    words = text_columns(values) if typed else frozenset[str]()
    opened = KeyedTable(name, canonical(keys.drop_nulls()), values, reading.bad, words)
    if len(opened.keys) == 0:
        raise UserError(f"{name} has no usable rows", hint=reading.bad.hint())
    hint = "a table has one row per key; is this the key column?"
    check_distinct(opened.keys, f"column {column!r} of {name} has the key", hint)
    return opened


def check_source(table: Any, what: str = FEATURES) -> None:
    """A UserError unless ``table`` is one file or table; cheap, for use before long work."""
    if isinstance(table, str | Path):
        files = expand([table])
        if len(files) != 1 or (files[0].is_dir() and not holds_parquet(files[0])):
            problem = "is a folder" if len(files) == 1 else f"matches {len(files)} files"
            raise UserError(f"{table} {problem}", hint=f"name one file of {what}")
    elif not (isinstance(table, pl.LazyFrame) or hasattr(table, "__arrow_c_stream__")):
        raise UserError(f"cannot read {what} from {type(table).__name__}", hint=ACCEPTED)


def _key_column(
    names: Sequence[str], wanted: str | None, usual: str | None, taken: Sequence[str], table: str
) -> str:
    free = [name for name in names if name not in taken]
    if wanted is not None and wanted not in names:
        raise UserError(f"{table} has no column {wanted!r}", hint=listing(names))
    if wanted is None and not free:
        raise UserError(f"{table} has no key column", hint=f"{listing(names)}; name it")
    return wanted or (usual if usual in free else free[0])


def open_texts(
    table: Any,
    usual: str | None,
    text_column: str | None,
    *,
    header: bool = True,
    dialect: Dialect = DEFAULT_DIALECT,
) -> TextTable:
    """A table of keys and texts, or lines ``key TAB text``.

    ``usual`` is the name of the key column elsewhere. ``text_column`` may be missing: the option
    is shared by several tables.
    """
    check_source(table, "texts")
    if isinstance(table, str | Path):
        (path,) = expand([table])
        if _holds_keyed_lines(path, {usual, text_column}, header=header):
            return _read_keyed_lines(path)
    opened = open_table(table, usual=usual, what="texts", dialect=dialect)
    return as_texts(opened, text_column if text_column in opened.values.columns else None)


def as_texts(table: KeyedTable, text_column: str | None) -> TextTable:
    """The texts of a table: the column named, else one with a usual name, else the only one."""
    names = table.values.columns
    if text_column is not None and text_column not in names:
        hint = f"{listing(names)} besides the keys; use --text-column NAME"
        raise UserError(f"{table.name} has no column {text_column!r}", hint=hint)
    column = text_column or find_usual(USUAL_NAMES["text"], names)
    if column is None and len(names) == 1:
        column = names[0]
    if column is None:
        raise UserError(
            f"cannot tell which column of {table.name} holds the text",
            hint=f"{listing(names)} besides the keys; use --text-column NAME",
        )
    words = as_words(table.values[column], table.name)
    return TextTable(table.name, table.keys, words, bad=table.bad)


def as_words(column: pl.Series, table: str) -> pl.Series:
    """A column as text; empty text is null."""
    if column.dtype not in (*TEXT_TYPES, pl.Null) and not column.dtype.is_numeric():
        raise UserError(
            f"column {column.name!r} of {table} holds {column.dtype}, not text",
            hint="use --text-column NAME",
        )
    text = column.cast(pl.String)
    return pl.select(pl.when(text != "").then(text)).to_series()


# ---------------------------------------------------------------------------------- lines


def is_separated(path: Path) -> bool:
    """Whether a file is CSV or TSV, by its suffix."""
    return base_suffix(path) in (".tsv", ".tab", ".csv")


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text, from 1 on; UTF-16 and UTF-32 are refused."""
    for number, line in enumerate(record_reader.raw_lines(path), start=1):
        if number == 1 and "\0" in line:
            raise record_reader.not_text(path)
        yield number, line


def line_numbers(path: Path) -> list[int]:
    return [number for number, _ in numbered_lines(path)]


def _holds_keyed_lines(path: Path, columns: Set[str | None], *, header: bool) -> bool:
    """Whether a file holds lines ``key TAB text``, not a table.

    A first line of usual names is a header even with ``header=False``: that option may be meant
    for the other files.
    """
    if base_suffix(path) not in (".txt", "") and (header or not is_separated(path)):
        return False
    first = next((line for line in record_reader.raw_lines(path) if line.strip()), "")
    mark = "\t" if "\t" in first else max(",;|", key=first.count)
    names = [name.strip(' "\r\n') for name in first.split(mark)]
    usual = find_usual(f"{USUAL_NAMES['labels']} {USUAL_NAMES['key']}", names[:1]) or find_usual(
        USUAL_NAMES["text"], names[1:]
    )
    return names[0].isdecimal() or not (usual or columns & set(names))


def _read_keyed_lines(path: Path) -> TextTable:
    bad, rows = BadRows(), []
    for number, line in numbered_lines(path):
        key, tab, text = line.rstrip("\r\n").partition("\t")
        if not line.strip():
            continue
        if not record_reader.is_decoded(line):
            bad.add(record_reader.NOT_UTF8, f"{path.name}:{number}")
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
    hint = "write one line per key: key TAB text"
    check_distinct(frame["key"], f"{path.name} has the key", hint)
    words = as_words(frame["text"], path.name)
    return TextTable(path.name, canonical(frame["key"]), words, bad=bad)
