"""Rows with ordered grades as they are read: tables, arrays, image files, KEEL files.

Columns and grades are kept as written. ``build.grades`` and ``build.graded`` interpret them.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import polars as pl
import torch

from rankfold.data.read import arrays, images, in_memory, keel
from rankfold.data.read.bad_rows import BadRows
from rankfold.data.read.columns import NONE, USUAL_NAMES, find_usual, listing
from rankfold.data.read.files import expand, home_of
from rankfold.data.read.reading import LINE, ROWS_SHOWN, Reading, Taken
from rankfold.data.read.results import RawRows
from rankfold.data.read.tables import collect, holds_parquet, is_text, read_columns, row_lines
from rankfold.data.read.values import (
    concat,
    concat_frames,
    keys_of,
    row_numbers,
    text_columns,
    times_of,
)
from rankfold.errors import UserError, pluralize

ACCEPTED = (
    "a table (CSV, TSV, JSON lines, Parquet, Arrow, KEEL .dat), an .npz of arrays, a folder of "
    "images, or a polars, pandas or Arrow table"
)
T = TypeVar("T")
TABLE = "the table"
FEATURES_SHOWN = 6


class RowOptions(NamedTuple):
    """How to read graded rows."""

    grade_column: str | None = None  # None: as the format defines
    key_column: str | None = None  # not a feature unless it is in ``wanted``; ``none``: no column
    shape: images.ImageShape | None = None  # of image files
    numbered: bool = False  # rows without a key get their number as key
    wanted: Collection[str] = ()  # columns that a model takes
    time_column: str | None = None  # not a feature
    time_format: str | None = None  # None: guessed
    needs_time: bool = False  # without a time column, the one with a usual name is it
    group_column: str | None = None  # not a feature
    usual_key: str | None = None  # the column of keys where none is named and the table has it


def read_all(
    items: Sequence[tuple[int | None, Any]], options: RowOptions, reading: Reading
) -> RawRows:
    """The rows of all inputs, each with the number of its split, if given."""
    parts: list[RawRows] = []
    n_read = 0
    for split, item in _inputs(items):
        name = item.name if isinstance(item, Path | images.Album) else TABLE
        reading.progress(f"reading {name}", 0.0)
        n_bad = reading.bad.total
        rows = read(item, options, reading)
        _record_taken(rows, name, options, reading)
        n_bad = reading.bad.total - n_bad
        if options.numbered and rows.keys is None:
            rows = replace(rows, keys=n_read + _row_numbers(rows, item, n_bad, reading))
        n_read += len(rows) + n_bad
        if split is not None:
            rows = rows.in_split(split)
        parts.append(rows)
    if not parts:
        raise UserError("there is nothing to read", hint="name a file, a folder or a --source")
    try:
        rows = join(parts)
    except pl.exceptions.PolarsError as error:  # for example lists and numbers
        raise UserError(
            f"the inputs have columns of incompatible types: {error}",
            hint="all inputs need the same columns, of numbers or text",
        ) from error
    check_not_empty(rows, reading.bad)
    return rows


def _record_taken(rows: RawRows, name: str, options: RowOptions, reading: Reading) -> None:
    """Say which columns are the grades, the keys and, the first of them, features."""
    features = [column for column in rows.table.columns if column != LINE]
    shown = features[:FEATURES_SHOWN]
    head = rows.table.head(ROWS_SHOWN).select(shown)
    columns: dict[str, str | None] = {column: column for column in shown}
    for role, values, given in (
        ("grade", rows.grades, options.grade_column),
        ("key", rows.keys, options.key_column),
    ):
        if values is not None and given is not None and role not in columns:
            head = head.with_columns(values.head(ROWS_SHOWN).alias(f"\0{role}"))
            columns = {role: f"\0{role}", **columns}
    taken = Taken.of(name, (), columns, head)
    roles = {"grade": options.grade_column, "key": options.key_column}
    named = {role: str(roles.get(role, column)) for role, column in taken.columns.items()}
    more = features[FEATURES_SHOWN:]
    notes = [f"{pluralize(len(more), 'more feature')}"] if more else []
    reading.taken.append(taken._replace(columns=named, notes=notes))


def _inputs(items: Sequence[tuple[int | None, Any]]) -> Iterator[tuple[int | None, Any]]:
    """The files, folders and tables of the items; the image files of a split are one album.

    In an album, images are known by their paths, and grey only if all of them are.
    """
    expanded = [(split, *one) for split, value in items for one in _expand(value)]
    for (split, is_image), group in groupby(expanded, lambda one: (one[0], one[1] is not None)):
        homes, members = zip(*((home, member) for _, home, member in group), strict=True)
        if is_image:
            yield split, images.album_of_files(members, homes)
        else:
            yield from ((split, member) for member in members)


def _expand(value: Any) -> Iterator[tuple[Path | None, Any]]:
    """The files of an item, each with the home of an image file, or None.

    If one file of a glob is an image, all of them are read as images.
    """
    if not isinstance(value, str | Path):
        yield None, value
        return
    files = expand([value])
    if any(map(images.is_image, files)):
        home = home_of(value)
        yield from ((home, file) for file in files if not images.is_thumbnail_cache(file))
    else:
        yield from ((None, file) for file in files)


def check_not_empty(rows: RawRows, bad: BadRows) -> None:
    """A UserError if there are no rows."""
    if len(rows) == 0:
        raise UserError(f"{rows.name} has no usable rows", hint=bad.hint())


def read(item: Any, options: RowOptions, reading: Reading) -> RawRows:
    """All rows of one input: a path, image files, a table in memory, or arrays by name."""
    if options.key_column == NONE:
        options = options._replace(key_column=None, usual_key=None)
    if isinstance(item, images.Album):
        return _from_album(item, options, reading)
    if isinstance(item, Path):
        if item.is_dir() and not holds_parquet(item):
            return _from_album(images.album_of(item), options, reading)
        if item.suffix.lower() == ".npz":
            return _from_arrays(arrays.load(item), options, item.name)
        if keel.looks_like_keel(item):
            return from_keel(item, options, reading)
        frame = read_columns(item, reading)
        words = frozenset[str]() if is_text(item) else text_columns(frame)
        return _from_table(frame, options, item.name, reading.bad, words)
    if isinstance(item, Mapping):
        return _from_arrays(arrays.check(item), options, "the dict")
    if isinstance(item, pl.LazyFrame) or hasattr(item, "__arrow_c_stream__"):
        frame = collect(in_memory.to_frame(item), TABLE)
        return _from_table(frame, options, TABLE, reading.bad, text_columns(frame))
    raise UserError(f"cannot read rows from {type(item).__name__}", hint=f"pass {ACCEPTED}")


def _row_numbers(rows: RawRows, item: Any, n_bad: int, reading: Reading) -> pl.Series:
    """The number of each row in its input, from 0, counting the ``n_bad`` dropped rows."""
    if not n_bad:
        return pl.int_range(len(rows), eager=True)
    is_keel = keel.looks_like_keel(item)
    all_lines = keel.row_lines(item) if is_keel else row_lines(item, reading)
    return row_numbers(rows.table[LINE].str.extract(r"(\d+)$"), all_lines)


def join(parts: Sequence[RawRows]) -> RawRows:
    """Parts with the same columns, one after another; columns of different types become text."""
    first = parts[0]
    if len(parts) == 1:
        return first
    for part in parts[1:]:
        _check_same(first, part)
    return RawRows(
        name=f"{first.name} and {len(parts) - 1} more",
        table=concat_frames([part.table for part in parts]),
        grades=_joined(concat, [part.grades for part in parts]),
        keys=_joined(concat, [part.keys for part in parts]),
        images=_joined(torch.cat, [part.images for part in parts]),
        splits=_joined(np.concatenate, [part.splits for part in parts]),
        times=_joined(concat, [part.times for part in parts]),
        groups=_joined(concat, [part.groups for part in parts]),
        order=first.order,
        grade_hint=next((part.grade_hint for part in parts if part.grades is None), None),
        words=frozenset().union(*(part.words for part in parts)),
        without=first.without,
    )


def _joined(join: Callable[[list[T]], T], values: Sequence[T | None]) -> T | None:
    """The values joined; None if one is missing."""
    present = [value for value in values if value is not None]
    return join(present) if len(present) == len(values) else None


def _check_same(one: RawRows, other: RawRows) -> None:
    for full, short in ((one, other), (other, one)):
        missing = sorted(set(full.table.columns) - set(short.table.columns))
        if missing:
            raise UserError(
                f"{short.name} has no column {missing[0]!r}, {full.name} has one",
                hint="all inputs need the same columns",
            )
    shapes = [None if p.images is None else tuple(p.images.shape[1:]) for p in (one, other)]
    if shapes[0] != shapes[1]:
        raise UserError(
            f"the images of {one.name} have shape {shapes[0]}, those of {other.name} {shapes[1]}",
            hint="all images need the same height, width and channels",
        )


def drop_named(rows: RawRows, names: Sequence[str] | None) -> RawRows:
    """The rows without the named columns."""
    present = [name for name in rows.table.columns if name != LINE]
    names = [name.strip() for name in names or ()]
    for name in names:
        if name not in present:
            hint = listing(present) if present else "it has no columns"
            raise UserError(f"{rows.name} has no column {name!r} to drop", hint=hint)
    return drop_columns(rows, names, "named by --drop")


def drop_columns(rows: RawRows, names: Sequence[str], why: str) -> RawRows:
    """The rows without some columns, which are recorded with the reason."""
    without = {**rows.without, **dict.fromkeys(names, why)}
    return replace(rows, table=rows.table.drop(names, strict=False), without=without)


# ---------------------------------------------------------------------------------- formats


def _from_table(
    frame: pl.DataFrame,
    options: RowOptions,
    name: str,
    bad: BadRows,
    words: frozenset[str] = frozenset(),
) -> RawRows:
    frame = _with_entries(frame, options.grade_column)
    names = [column for column in frame.columns if column != LINE]
    if options.key_column is None and options.usual_key in names:
        options = options._replace(key_column=options.usual_key)
    time, group = _time_column(options, names, name), options.group_column
    named = (
        (options.grade_column, "--grade-column NAME"),
        (options.key_column, "--query-column NAME"),
        (time, "--time-column NAME"),
        (group, "--split group:NAME"),
    )
    for column, option in named:
        if column is not None and column not in names:
            raise UserError(
                f"{name} has no column {column!r}", hint=f"{listing(names)}; use {option}"
            )
    taken = {column for column, _ in named if column is not None}
    places = pl.format("{}:{}", pl.lit(name), pl.col(LINE)).alias(LINE)
    without = {time: "it is the time of the rows", group: "it names the groups of the split"}
    rows = RawRows(
        name=name,
        table=frame.with_columns(places).drop(taken.difference(options.wanted)),
        grades=None if options.grade_column is None else frame[options.grade_column],
        keys=None if options.key_column is None else keys_of(frame, options.key_column, name),
        times=None if time is None else times_of(frame, time, name, options.time_format),
        groups=None if group is None else keys_of(frame, group, name),
        words=words,
        without={column: why for column, why in without.items() if column is not None},
    )
    return _with_both(rows, bad)


def _with_entries(frame: pl.DataFrame, grade_column: str | None) -> pl.DataFrame:
    """The table with vectors made elsewhere, lists of numbers, as a column per entry.

    Lists of different lengths, or of one number, stay what they are.
    """
    for column in frame.drop(grade_column or [], strict=False):
        if isinstance(column.dtype, pl.List | pl.Array) and column.dtype.inner.is_numeric():
            lists = column if isinstance(column.dtype, pl.List) else column.arr.to_list()
            lengths = lists.list.len().drop_nulls().unique()
            if len(lengths) == 1 and (n := int(lengths[0])) > 1:
                names = [f"{column.name}.{place:0{len(str(n - 1))}}" for place in range(n)]
                entries = lists.list.to_array(n).arr.to_struct(fields=names).struct.unnest()
                frame = frame.drop(column.name).hstack(entries)
    return frame


def _time_column(options: RowOptions, names: Sequence[str], table: str) -> str | None:
    """The named column of times; if the split needs one, else the one with a usual name."""
    if options.time_column is not None or not options.needs_time:
        return options.time_column
    name = find_usual(USUAL_NAMES["time"], names)
    if name is None:
        raise UserError(
            f"a split by time needs the times of {table}",
            hint=f"{listing(names)}; use --time-column NAME",
        )
    return name


def _with_both(rows: RawRows, bad: BadRows) -> RawRows:
    """The rows that have what the split needs; the others are recorded."""
    for column, what in ((rows.times, "time"), (rows.groups, "group")):
        if column is not None and column.null_count():
            bad.add_rows(f"a missing {what}", rows.table[LINE].filter(column.is_null()))
    for name in ("times", "groups"):
        column = getattr(rows, name)
        if column is not None:
            rows = rows.take(column.is_not_null().to_numpy())
    return rows


def from_keel(path: Path, options: RowOptions, reading: Reading) -> RawRows:
    """The rows of a KEEL file; its output is the grade, in the order of the header."""
    header, frame = keel.read(path, reading, options.grade_column)
    grade = options.grade_column or header.output
    rows = _from_table(frame, options._replace(grade_column=grade), path.name, reading.bad)
    return replace(
        rows,
        order=None if grade is None else header.values.get(grade),
        grade_hint=f"{listing(header.names)}; add @outputs NAME to its header",
        words=frozenset(header.values) - {grade, options.key_column, *rows.without},
    )


def _from_arrays(named: Mapping[str, Any], options: RowOptions, name: str) -> RawRows:
    _check_no_columns(name, options)
    parts, rows = arrays.by_split(named, options.grade_column, name), []
    for split, part in parts:
        rows.append(arrays.to_rows(part, options.grade_column, name))
        if split is not None:
            where = f"{arrays.SPLIT_PREFIXES[split][0]}* of {name}"
            rows[-1] = replace(rows[-1].in_split(split), name=where)
    hint = arrays.grade_hint([part for _, part in parts], [len(part) for part in rows])
    return replace(join(rows), name=name, grade_hint=hint)


def _from_album(album: images.Album, options: RowOptions, reading: Reading) -> RawRows:
    _check_no_columns(album.name, options, options.grade_column)
    if options.shape is None:
        raise UserError(
            f"cannot grade {album.name}: the model takes no images", hint="name a table"
        )
    return images.read(album, options.shape, reading)


def _check_no_columns(name: str, options: RowOptions, *columns: str | None) -> None:
    if options.needs_time:
        raise UserError(f"{name} has no column of times", hint="use shares: --split 0.8,0.1,0.1")
    for column in (options.key_column, options.time_column, options.group_column, *columns):
        if column is not None:
            raise UserError(
                f"{name} has no column {column!r}", hint="it has no columns: leave the option out"
            )
