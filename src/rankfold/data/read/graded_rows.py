"""Rows with ordered grades as they are read: tables, arrays, folders of images, KEEL files.

Nothing is understood here: columns and grades stand as they were written. ``graded`` does the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankfold.data.build.features import words_of
from rankfold.data.read import arrays, keel, memory
from rankfold.data.read import images as pictures
from rankfold.data.read.files import LINE, PLACES_SHOWN, BadRows, Reading
from rankfold.data.read.tables import collect, is_text, keys_of, listing, read_columns, row_lines
from rankfold.errors import UserError

ACCEPTED = (
    "a table (CSV, TSV, JSON lines, Parquet, Arrow, KEEL .dat), an .npz of arrays, a folder of "
    "images, or a polars, pandas or Arrow table"
)
T = TypeVar("T")
TABLE = "the table"


class Asked(NamedTuple):
    """What to look for in the input."""

    grade: str | None = None  # the column of grades; None: where the format says it is
    key: str | None = None  # the column of keys, which is no feature unless it is wanted
    shape: pictures.Shape | None = None  # of images that come from files: height, width, channels
    numbered: bool = False  # whether rows without a key get their number as one
    wanted: Collection[str] = ()  # columns that a model takes, also where one has the keys


@dataclass(frozen=True, slots=True)
class RawRows:
    """Rows that were read, not yet understood."""

    name: str
    table: pl.DataFrame  # the columns of features and, in ``LINE``, where each row stood
    grades: pl.Series | None  # as they were written, null where missing
    keys: pl.Series | None = None
    images: Tensor | None = None  # [n, height, width, channels] uint8
    splits: NDArray[np.uint8] | None = None  # 0 train, 1 validation, 2 test, where the input says
    order: Sequence[str] | None = None  # of the grades, lowest first, where the input says
    grade_hint: str | None = None  # where grades that are not found could be; None: in a column
    words: frozenset[str] = frozenset()  # columns of categories, also where these are numbers
    without: Mapping[str, str] = field(default_factory=dict)  # columns to leave out, and why
    set_aside: Mapping[str, int] = field(default_factory=dict)  # why, and how many rows it was

    def __len__(self) -> int:
        return len(self.table)

    def take(self, mine: NDArray[np.bool_]) -> RawRows:
        """The rows where ``mine`` [n] is true."""
        if mine.all():
            return self
        mask = pl.Series(mine)
        return replace(
            self,
            table=self.table.filter(mask),
            grades=None if self.grades is None else self.grades.filter(mask),
            keys=None if self.keys is None else self.keys.filter(mask),
            images=None if self.images is None else self.images[torch.from_numpy(mine)],
            splits=None if self.splits is None else self.splits[mine],
        )

    def note(self, wrong: NDArray[np.bool_], reason: str, bad: BadRows) -> None:
        """Tell of the rows where ``wrong`` [n] is true."""
        places = np.flatnonzero(wrong)
        for number, place in enumerate(self.table[LINE].gather(places[:PLACES_SHOWN])):
            bad.add(reason, place, 0 if number else len(places))


def read(item: Any, asked: Asked, reading: Reading) -> RawRows:
    """All rows of one input: a path, image files, a table in memory, or arrays by name."""
    if isinstance(item, pictures.Album):
        return _from_pictures(item, asked, reading)
    if isinstance(item, Path):
        if item.is_dir():
            return _from_pictures(pictures.album_of(item), asked, reading)
        if item.suffix.lower() == ".npz":
            return _from_arrays(arrays.load(item), asked, item.name)
        if keel.looks_like_keel(item):
            return from_keel(item, asked, reading)
        frame = read_columns(item, reading)
        words = frozenset[str]() if is_text(item) else words_of(frame)
        return _from_table(frame, asked, item.name, words)
    if isinstance(item, Mapping):
        return _from_arrays(arrays.check(item), asked, "the dict")
    if isinstance(item, pl.LazyFrame) or hasattr(item, "__arrow_c_stream__"):
        frame = collect(memory.to_frame(item), TABLE)
        return _from_table(frame, asked, TABLE, words_of(frame))
    raise UserError(f"cannot read rows from {type(item).__name__}", hint=f"pass {ACCEPTED}")


def row_numbers(rows: RawRows, item: Any, n_bad: int) -> pl.Series:
    """Which row of its input each row is, from 0; the ``n_bad`` that were left out count."""
    if not n_bad:
        return pl.int_range(len(rows), eager=True)
    every = (keel.row_lines if keel.looks_like_keel(item) else row_lines)(item)
    lines = rows.table[LINE].str.extract(r"(\d+)$").cast(pl.Int64)
    return pl.Series(every, dtype=pl.Int64).search_sorted(lines).cast(pl.Int64)


def join(parts: Sequence[RawRows]) -> RawRows:
    """One after another; they have the same columns. Columns of unlike types become text."""
    first = parts[0]
    if len(parts) == 1:
        return first
    for part in parts[1:]:
        _check_alike(first, part)
    names = first.table.columns
    schemas = [part.table.schema for part in parts]
    unlike = [name for name in names if len({schema[name] for schema in schemas}) > 1]
    tables = [
        part.table.select(names).with_columns(pl.col(unlike).cast(pl.String)) for part in parts
    ]
    images = _of_all([part.images for part in parts])
    splits = _of_all([part.splits for part in parts])
    return RawRows(
        name=f"{first.name} and {len(parts) - 1} more",
        table=pl.concat(tables),
        grades=_joined([part.grades for part in parts]),
        keys=_joined([part.keys for part in parts]),
        images=None if images is None else torch.cat(images),
        splits=None if splits is None else np.concatenate(splits),
        order=first.order,
        grade_hint=next((part.grade_hint for part in parts if part.grades is None), None),
        words=frozenset().union(*(part.words for part in parts)),
        without=first.without,
    )


def _of_all(values: Sequence[T | None]) -> list[T] | None:
    """The values; None where one is missing."""
    found = [value for value in values if value is not None]
    return found if len(found) == len(values) else None


def _joined(columns: Sequence[pl.Series | None]) -> pl.Series | None:
    found = _of_all(columns)
    if found is None:
        return None
    unlike = len({column.dtype for column in found}) > 1
    return pl.concat([column.cast(pl.String) if unlike else column for column in found])


def _check_alike(one: RawRows, other: RawRows) -> None:
    for having, lacking in ((one, other), (other, one)):
        missing = sorted(set(having.table.columns) - set(lacking.table.columns))
        if missing:
            raise UserError(
                f"{lacking.name} has no column {missing[0]!r}, {having.name} has one",
                hint="all inputs have the same columns",
            )
    shapes = [None if p.images is None else tuple(p.images.shape[1:]) for p in (one, other)]
    if shapes[0] != shapes[1]:
        raise UserError(
            f"the images of {one.name} are of shape {shapes[0]}, those of {other.name} of "
            f"{shapes[1]}",
            hint="all images have the same height, width and channels",
        )


def drop(rows: RawRows, names: Sequence[str] | None) -> RawRows:
    """The rows without the columns that nobody wants."""
    there = [name for name in rows.table.columns if name != LINE]
    names = [name.strip() for name in names or ()]
    for name in names:
        if name not in there:
            hint = listing(there) if there else "it has no columns"
            raise UserError(f"{rows.name} has no column {name!r} to drop", hint=hint)
    return leave_out(rows, names, "as asked")


def leave_out(rows: RawRows, names: Sequence[str], why: str) -> RawRows:
    """The rows without some of their columns."""
    without = {**rows.without, **dict.fromkeys(names, why)}
    return replace(rows, table=rows.table.drop(names, strict=False), without=without)


# ---------------------------------------------------------------------------------- formats


def _from_table(
    frame: pl.DataFrame, asked: Asked, name: str, words: frozenset[str] = frozenset()
) -> RawRows:
    names = [column for column in frame.columns if column != LINE]
    for column, option in ((asked.grade, "--grade-column"), (asked.key, "--query-column")):
        if column is not None and column not in names:
            hint = f"{listing(names)}; use {option} NAME"
            raise UserError(f"{name} has no column {column!r}", hint=hint)
    taken = {column for column in (asked.grade, asked.key) if column is not None}
    places = pl.format("{}:{}", pl.lit(name), pl.col(LINE)).alias(LINE)
    return RawRows(
        name=name,
        table=frame.with_columns(places).drop(taken.difference(asked.wanted)),
        grades=None if asked.grade is None else frame[asked.grade],
        keys=None if asked.key is None else keys_of(frame, asked.key, name),
        words=words,
    )


def from_keel(path: Path, asked: Asked, reading: Reading) -> RawRows:
    """The rows of a KEEL file; its output is the grade, in the order of its values there."""
    header, frame = keel.read(path, reading, asked.grade)
    grade = asked.grade or header.output
    rows = _from_table(frame, asked._replace(grade=grade), path.name)
    return replace(
        rows,
        order=None if grade is None else header.values.get(grade),
        grade_hint=f"{listing(header.names)}; name one in its header: @outputs NAME",
        words=frozenset(header.values) - {grade, asked.key},
    )


def _from_arrays(found: Mapping[str, Any], asked: Asked, name: str) -> RawRows:
    _check_no_columns(name, asked.key)
    splits = arrays.by_split(found, asked.grade, name)
    parts = [arrays.understand(part, asked.grade, name) for _, part in splits]
    rows = [
        RawRows(
            name=name if split is None else f"{arrays.SPLITS[split][0]}* of {name}",
            table=part.table,
            grades=part.grades,
            images=part.images,
            splits=None if split is None else np.full(len(part.table), split, dtype=np.uint8),
            words=part.words,
        )
        for (split, _), part in zip(splits, parts, strict=True)
    ]
    return replace(join(rows), name=name, grade_hint=arrays.where_grades(parts))


def _from_pictures(album: pictures.Album, asked: Asked, reading: Reading) -> RawRows:
    _check_no_columns(album.name, asked.key, asked.grade)
    if asked.shape is None:
        raise UserError(
            f"cannot grade {album.name}: the model takes no images", hint="name a table"
        )
    found = pictures.read(album, asked.shape, reading)
    return RawRows(
        name=album.name,
        table=pl.DataFrame({LINE: found.names}),
        grades=found.folders,
        keys=found.names,
        images=found.images,
    )


def _check_no_columns(name: str, *asked: str | None) -> None:
    for column in asked:
        if column is not None:
            raise UserError(f"{name} has no column {column!r}", hint="it has no columns: name none")
