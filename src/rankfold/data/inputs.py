"""The inputs of ``prepare``: which reader reads what, by the options."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any

import polars as pl

from rankfold.data.build import graded_split, split, tokens
from rankfold.data.build.grades import GradedRows, order_grades
from rankfold.data.build.side_features import SideTables
from rankfold.data.options import GRADED_ONLY, Input, Preparation, flag, is_default
from rankfold.data.read import in_memory, keel
from rankfold.data.read.adjacency import looks_like_adjacency, read_adjacency
from rankfold.data.read.bad_rows import BadRows
from rankfold.data.read.columns import NONE, PairColumns
from rankfold.data.read.dialect import Dialect, decoded
from rankfold.data.read.documents import DocumentColumns, read_documents
from rankfold.data.read.files import base_suffix, expand, lines
from rankfold.data.read.graded_rows import RowOptions, drop_named, read_all
from rankfold.data.read.images import ImageShape
from rankfold.data.read.keyed_tables import check_source, open_table, open_texts
from rankfold.data.read.reading import Reading
from rankfold.data.read.results import Documents, RawRows
from rankfold.data.read.tables import holds_parquet, is_text, read_frame, read_table, stack
from rankfold.data.read.xc import read_xc
from rankfold.data.sources import SOURCES
from rankfold.errors import UserError
from rankfold.types import SPLITS

Rows = pl.LazyFrame | Documents | GradedRows
_LINES_SAMPLED = 10  # to detect adjacency files


def read_inputs(inputs: Sequence[Input], options: Preparation, reading: Reading) -> Rows:
    """The usable rows of the inputs, with a column ``split`` if splits are given."""
    rows: Rows | RawRows
    given = _given_splits(inputs, options)
    items = [*given, *((None, value) for value in inputs)]
    if options.format == "xc":
        rows = _read_xc(inputs, options, reading)
    elif options.source is not None and not given:
        rows = _read_source(inputs, options, reading)
    elif options.format == "texts" and options.query_texts is None:
        rows = _read_documents(items, options, reading)
    elif options.format == "features":
        rows = _read_features(items, options, reading)
    elif given:
        splits = {n: _read_pairs([value], options, reading) for n, value in given}
        rows = _stack_splits(splits)
    else:
        rows = _read_pairs(inputs, options, reading)
    if isinstance(rows, RawRows):
        rows = order_grades(rows, _listed(options.grades), reading.bad)
    _check_strict(options, reading.bad)
    return rows


def _given_splits(inputs: Sequence[Input], options: Preparation) -> list[tuple[int, Input]]:
    """The given splits by number."""
    values = enumerate((options.train, options.validation, options.test))
    given = [(number, value) for number, value in values if value is not None]
    if given and (inputs or options.train is None or options.format == "xc"):
        raise UserError(
            "given splits need a train file and no other input",
            hint="use --train F, and optionally --validation F and --test F",
        )
    return given


def _check_strict(options: Preparation, bad: BadRows) -> None:
    if options.strict and bad.counts:
        raise UserError(
            f"bad rows: {'; '.join(bad.describe())}",
            hint="correct them, or leave --strict out to drop them",
        )


def _listed(names: str | Sequence[Any] | None) -> Sequence[Any] | None:
    return names.split(",") if isinstance(names, str) else names


def _files(value: Input, options: Preparation, reading: Reading) -> Sequence[Input]:
    """The files of a path, a glob or a list of them, in UTF-8; a table in memory is one item."""
    items = _items(value)
    if not all(isinstance(path, str | Path) for path in items):
        return items
    return [decoded(path, options.encoding, reading.scratch) for path in expand(items)]


def _items(value: Input) -> Sequence[Input]:
    """The paths and globs of a list; anything else is one item."""
    is_list = isinstance(value, list) and all(isinstance(path, str | Path) for path in value)
    return value if is_list else [value]


# ---------------------------------------------------------------------------------- formats


def _read_documents(
    given: Sequence[tuple[int | None, Input]], options: Preparation, reading: Reading
) -> Documents:
    items = [(item, number) for number, value in given for item in _files(value, options, reading)]
    columns = DocumentColumns(options.query_column, options.text_column, options.candidate_column)
    separator = options.label_separator
    return read_documents(items, columns, reading, separator=separator, header=options.header)


def _read_features(
    given: Sequence[tuple[int | None, Input]], options: Preparation, reading: Reading
) -> RawRows:
    files = (
        _items if options.encoding is None else partial(_files, options=options, reading=reading)
    )
    items = [(number, item) for number, value in given for item in files(value)]
    shape = ImageShape(options.image_size, options.image_size)
    rule = graded_split.parse(options.split, options.validation_share)
    time, query = (
        None if name == NONE else name for name in (options.time_column, options.query_column)
    )
    how = RowOptions(
        options.grade_column, query, shape, time_column=time, time_format=options.time_format
    )
    if options.train is None:
        how = how._replace(needs_time=rule.splitter.needs_time, group_column=rule.group)
    rows = read_all(items, how, reading)
    rows = rows if options.keeps_splits else replace(rows, splits=None)
    return drop_named(rows, _listed(options.drop))


def _read_xc(inputs: Sequence[Input], options: Preparation, reading: Reading) -> Documents:
    if len(inputs) != 1 or not isinstance(inputs[0], str | Path) or options.source is not None:
        raise UserError("the format xc needs one folder and no source", hint="name the folder")
    (path,) = expand([inputs[0]])
    return read_xc(path, reading, content=options.content)


def _read_source(inputs: Sequence[Input], options: Preparation, reading: Reading) -> Rows | RawRows:
    assert options.source is not None
    source = SOURCES[options.source]
    if bool(inputs) != bool(source.inputs):
        expected = f"takes {source.inputs}" if source.inputs else "is bundled and takes no input"
        raise UserError(f"the source {options.source} {expected}", hint=source.summary)
    read = source.read_texts if options.format == "texts" else source.read
    if read is None:
        with_texts = [name for name, other in SOURCES.items() if other.read_texts]
        hint = f"leave --format texts out; sources with texts: {', '.join(with_texts)}"
        raise UserError(f"the source {options.source} has no texts", hint=hint)
    reading.progress(f"reading {options.source}", 0.0)
    reading = replace(reading, dialect=Dialect(missing=("",)), taken=[])  # a known format
    rows = read(expand(inputs), reading)
    if isinstance(rows, RawRows):
        changed = [name for name in ("split", *GRADED_ONLY) if not is_default(options, name)]
        if rows.splits is not None and changed:
            raise UserError(
                f"the source {options.source} has official splits and grades",
                hint=f"leave {flag(changed[0])} out",
            )
        return drop_named(rows, _listed(options.drop))
    if isinstance(rows, Documents):
        return rows
    columns = PairColumns("query", "candidate", None, _time_column(options))
    if isinstance(rows, pl.LazyFrame):
        return read_frame(rows, columns, options.source, reading)
    splits = {n: read_frame(part, columns, SPLITS[n], reading) for n, part in rows.items()}
    return _stack_splits(splits)


# ---------------------------------------------------------------------------------- pairs


def _stack_splits(splits: Mapping[int, pl.LazyFrame]) -> pl.LazyFrame:
    """The rows of all splits, with the number of their split."""
    parts = {n: rows.with_columns(split=pl.lit(n, pl.UInt8)) for n, rows in splits.items()}
    return stack([(SPLITS[n], rows) for n, rows in parts.items()])


def _read_pairs(inputs: Sequence[Input], options: Preparation, reading: Reading) -> pl.LazyFrame:
    columns = PairColumns(
        options.query_column,
        options.candidate_column,
        options.grade_column,
        _time_column(options),
    )
    items = [item for value in inputs for item in _files(value, options, reading)]
    if not items:
        raise UserError("there is nothing to read", hint="name a file, or a --source")
    tables = []
    for number, item in enumerate(items):
        name = (item.name or str(item)) if isinstance(item, Path) else "the table"
        reading.progress(f"reading {name}", number / len(items))
        if isinstance(item, Path):
            tables.append((name, _read_file(item, columns, options, reading)))
        else:
            tables.append(
                (name, read_frame(in_memory.to_frame(item, reading), columns, name, reading))
            )
    return stack(tables)


def _read_file(
    path: Path, columns: PairColumns, options: Preparation, reading: Reading
) -> pl.LazyFrame:
    if holds_parquet(path):
        return read_table(path, columns, reading)
    if path.is_dir():
        raise UserError(f"{path} is a folder", hint=f"name its files: '{path}/*.csv'")
    if options.format is None and is_text(path) and keel.looks_like_keel(path):
        raise UserError(
            f"{path.name} is a KEEL file of graded rows, not of pairs", hint="add --format features"
        )
    detect = options.format is None and options.header and not options.named_columns
    detect = detect and base_suffix(path) in (".txt", "")
    first = [text for _, text in islice(lines(path), _LINES_SAMPLED)] if detect else []
    if options.format == "adjacency" or looks_like_adjacency(first):
        names = PairColumns("query", "candidate", NONE, NONE)
        return read_frame(read_adjacency(path), names, path.name, reading)
    return read_table(path, columns, reading, header=options.header)


def _time_column(options: Preparation) -> str | None:
    """The named column; None: guess it, where something needs times."""
    return options.time_column or (None if _wants_time(options) else NONE)


def _wants_time(options: Preparation) -> bool:
    rule = split.default_rule(by_queries=False) if options.split is None else options.split
    return split.parse(rule, 0.0).needs_time or options.duplicates == "last"


# ---------------------------------------------------------------------------------- side tables


def check_tables(options: Preparation) -> None:
    """A UserError for a missing table or library, before long work."""
    for what, side in product(("features", "texts"), ("query", "candidate")):
        table = getattr(options, f"{side}_{what}")
        if table is not None:
            check_source(table, what)
    if options.tokens == "word-piece":
        tokens.check_tokenizers()


def read_tables(options: Preparation, reading: Reading, rows: Rows) -> SideTables:
    """The tables of features and texts. Their key columns have the names of those in the pairs.

    Graded rows and documents have their own features and texts.
    """
    own = rows.tables if isinstance(rows, Documents) else {}
    tables: dict[str, dict[str, Any]] = {"features": {}, "texts": dict(own)}
    for what, side in product(tables, ("query", "candidate")):
        table = getattr(options, f"{side}_{what}")
        if table is None:
            continue
        is_graded = isinstance(rows, GradedRows)
        own_table = tables[what].get(side)
        if is_graded or (own_table is not None and own_table.has_texts):
            kind = "graded rows" if is_graded else "these documents"
            raise UserError(
                f"{kind} take no table of {side} {what}",
                hint=f"leave --{side}-{what} out: the rows have their own {what}",
            )
        reading.progress(f"reading {side} {what}", 0.0)
        if isinstance(table, str | Path):
            (table,) = _files(table, options, reading)
        usual, dialect = reading.columns.get(side), reading.dialect
        if what == "features":
            tables[what][side] = open_table(table, usual=usual, dialect=dialect)
        else:
            texts = open_texts(
                table, usual, options.text_column, header=options.header, dialect=dialect
            )
            if own_table is not None:
                if any(one.bags is not None for one in own.values()):
                    raise UserError(
                        "the documents are bags of features: their labels have no texts in words",
                        hint="give the labels' features, lbl_X_Xf.txt, or prepare raw texts, "
                        "trn.json",
                    )
                texts = texts.with_keys(own_table.keys)
            tables[what][side] = texts
        _check_strict(options, tables[what][side].bad)
    return SideTables(**tables)
