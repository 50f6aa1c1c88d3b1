"""Rows with ordered grades: from what was read to prepared data, and new rows for a model.

The grades have an order: the one that is given, else that of numbers. What is learnt from the rows,
which columns tell something and which levels a category has, is learnt from train alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankfold.data import folder
from rankfold.data.build import features, split
from rankfold.data.build.grades import SHOWN, GradedRows, canonical, places_of, spelled
from rankfold.data.build.pairs import Pairs
from rankfold.data.build.side_features import dropped
from rankfold.data.read import images as pictures
from rankfold.data.read.files import LINE, BadRows, Reading, expand, home_of
from rankfold.data.read.graded_rows import Asked, RawRows, join, read, row_numbers
from rankfold.data.read.tables import listing
from rankfold.errors import UserError
from rankfold.types import Columns, Comm, Dataset, Graded, Vocabulary

SPLIT_HINT = "write --split 0.8,0.1,0.1: shares of the rows of each grade"
HASHED_BYTES = 2**22  # of rows at a time
MOST_LEVELS = 1000  # of a text that has more levels than half of its rows


class NewRows(NamedTuple):
    """Rows for a model that is fitted."""

    rows: Graded
    keys: pl.Series  # [n]: of the key column; without one paths of image files, else row numbers
    unknown: Mapping[str, int] = {}  # columns of categories with values that are new, and how many


def read_rows(
    source: Any,
    columns: Columns | None,
    *,
    key: str | None = None,
    image_shape: tuple[int, int, int] | None = None,
    grade: str | None = None,
    grades: Sequence[str] = (),
    reading: Reading | None = None,
) -> NewRows:
    """New rows by the columns that a model knows; values that these do not know become -1.

    Args:
        source: a path or a glob (tables, an .npz, a folder of images or its files, KEEL files), or
            a table in memory.
        columns: what the model was fitted with; None: on images alone.
        key: a column to tell the rows apart by, which may be a feature too; without one, rows have
            their number in the input, from 0 (bad rows count), and images the paths of their files
            inside the folder, or inside that which a glob begins with.
        image_shape: height, width and channels of the images that the model takes, if it does.
        grade: the column of grades of a table; other formats say themselves where grades are.
        grades: the names of the grades, lowest first, where grades are wanted; a row of another
            grade, or of none, has the grade -1, as has every row without this argument.
        reading: collects bad rows, which are left out; without it they are a UserError.
    """
    known = Columns((), {}) if columns is None else columns
    with TemporaryDirectory(prefix="rankfold-") as scratch:
        mine = Reading(Path(scratch)) if reading is None else reading
        shape = None if image_shape is None else pictures.Shape(*image_shape)
        asked = Asked(grade, key, shape, numbered=True, wanted=(*known.numbers, *known.levels))
        rows, keys = _keyed(read_all([(None, source)], asked, mine), mine.bad)
    if reading is None and mine.bad.counts:
        raise UserError(f"found {'; '.join(mine.bad.describe())}", hint="correct these rows")
    _check_columns(rows, known)
    numbers, categories = features.fill(rows.table, known, rows.name)
    images = None
    if image_shape is not None:
        images = rows.images
        _check_images(rows, image_shape)
    places = torch.full((len(rows),), -1)
    if grades and rows.grades is not None:
        places = torch.from_numpy(places_of(spelled(rows.grades, grades), canonical(grades)))
    unknown = features.unknown(rows.table, known, categories)
    return NewRows(Graded(numbers, categories, images, places), keys, unknown)


def _keyed(rows: RawRows, bad: BadRows) -> tuple[RawRows, pl.Series]:
    """The rows that have a key, and these keys; the others are noted."""
    assert rows.keys is not None
    missing = rows.keys.is_null()
    rows.note(missing.to_numpy(), "a missing key", bad)
    return _some(rows.take(~missing.to_numpy()), bad), rows.keys.filter(~missing)


def read_all(items: Sequence[tuple[int | None, Any]], asked: Asked, reading: Reading) -> RawRows:
    """The rows of all inputs, each with the number of the split that it is, if that is given."""
    found: list[RawRows] = []
    n_read = 0
    for number, item in _inputs(items):
        name = item.name if isinstance(item, Path | pictures.Album) else "the table"
        reading.progress(f"reading {name}", 0.0)
        n_bad = reading.bad.total
        rows = read(item, asked, reading)
        n_bad = reading.bad.total - n_bad
        if asked.numbered and rows.keys is None:
            rows = replace(rows, keys=n_read + row_numbers(rows, item, n_bad))
        n_read += len(rows) + n_bad
        if number is not None:
            rows = replace(rows, splits=np.full(len(rows), number, dtype=np.uint8))
        found.append(rows)
    if not found:
        raise UserError("there is nothing to read", hint="name a file, a folder or a --source")
    try:
        return _some(join(found), reading.bad)
    except pl.exceptions.PolarsError as error:  # lists beside numbers, say
        raise UserError(
            f"the inputs have columns of types that do not go together: {error}",
            hint="all inputs have the same columns, of numbers or text",
        ) from error


def _inputs(items: Sequence[tuple[int | None, Any]]) -> Iterator[tuple[int | None, Any]]:
    """The files, folders and tables that items name; image files of a split are one album.

    Together they are told apart as in a folder, by their paths, and grey only where all are.
    """
    named = [(number, *one) for number, value in items for one in _named(value)]
    for (number, loose), some in groupby(named, lambda one: (one[0], one[1] is not None)):
        homes, found = zip(*((home, item) for _, home, item in some), strict=True)
        if loose:
            yield number, pictures.album_of_files(found, homes)
        else:
            yield from ((number, item) for item in found)


def _named(value: Any) -> Iterator[tuple[Path | None, Any]]:
    """What an item names, each after the home of image files; of all else it is None.

    Where one file of a glob is an image, the others are taken for what they are in its folder.
    """
    if not isinstance(value, str | Path):
        yield None, value
        return
    files = expand([value])
    if any(map(pictures.is_picture, files)):
        home = home_of(value)
        yield from ((home, file) for file in files if not pictures.is_reserved(file))
    else:
        yield from ((None, file) for file in files)


def _some(rows: RawRows, bad: BadRows) -> RawRows:
    """The rows, of which there must be one at least."""
    if len(rows) == 0:
        why = "; ".join(bad.describe())
        raise UserError(f"{rows.name} has no usable rows", hint=why or "is it the right file?")
    return rows


def _check_columns(rows: RawRows, columns: Columns) -> None:
    wanted = (*columns.numbers, *columns.levels)
    missing = [name for name in wanted if name not in rows.table.columns]
    if missing:
        names = [name for name in rows.table.columns if name != LINE]
        one = len(missing) == 1
        raise UserError(
            f"{rows.name} has no column{'' if one else 's'} {', '.join(map(repr, missing))}, which "
            "the model was fitted with",
            hint=f"{listing(names) if names else 'it has no columns'}; the values may be missing",
        )


def _check_images(rows: RawRows, shape: tuple[int, int, int]) -> None:
    wanted = " x ".join(map(str, shape))
    if rows.images is None:
        raise UserError(
            f"{rows.name} has no images, which the model takes",
            hint=f"name a folder of images, or an .npz with images of {wanted}",
        )
    if tuple(rows.images.shape[1:]) != shape:
        raise UserError(
            f"the images of {rows.name} are of {' x '.join(map(str, rows.images.shape[1:]))}, "
            f"but the model takes {wanted}",
            hint="name a folder of images: these are brought to that size",
        )


# ---------------------------------------------------------------------------------- splits


class Splitting(NamedTuple):
    """How to split, where the rows do not say it themselves."""

    rule: str | Sequence[float] | None  # shares; None: those of the input, else the usual ones
    validation_share: float  # carved from train where there are splits without validation
    seed: int


def assign(found: GradedRows, how: Splitting) -> split.Assignment:
    """The split of each row, drawn among the rows of its grade: the shares hold for each grade."""
    splitter = _splitter(how)
    rng = np.random.default_rng(how.seed)
    grades, given = found.grades, found.rows.splits
    pairs = Pairs(grades, grades, None, None, grades, given)  # a grade has rows as a query pairs
    if given is None:
        splits = splitter.assign(pairs, rng)
    elif how.validation_share and not (given == split.VALIDATION).any():
        splits = split.carve_validation(pairs, how.validation_share, rng)
    else:
        splits = given
    for place, name in enumerate(found.names):
        if not (splits[grades == place] == split.TRAIN).any():
            raise UserError(
                f"no row of the grade {name!r} is for training",
                hint="name the other grades with --grades, or split otherwise",
            )
    return splits


def _splitter(how: Splitting) -> split.Splitter:
    rule = split.USUAL if how.rule is None else how.rule
    if isinstance(rule, str) and (rule == "last" or ":" in rule):
        raise UserError(f"graded rows cannot be split by {rule!r}", hint=SPLIT_HINT)
    return split.parse_shares(rule, SPLIT_HINT)


# ---------------------------------------------------------------------------------- assembling


def assemble(found: GradedRows, how: Splitting, reading: Reading) -> Dataset:
    """Split the rows, learn what their columns mean, and put them in order of their splits."""
    reading.progress("splitting", 0.0)
    splits = assign(found, how)
    rows = found.rows
    if rows.images is not None:
        pictures.check_size(rows.images, rows.name)
    reading.progress("reading columns", 0.0)
    columns, left_out, doubtful = _learn(rows, splits == split.TRAIN)
    if not columns.numbers and not columns.levels and rows.images is None:
        why = "; ".join(f"{entry['column']}: {entry['why']}" for entry in left_out[:SHOWN])
        raise UserError(f"{rows.name} has no column of features", hint=why or "it has grades alone")
    numbers, categories = features.fill(rows.table, columns, rows.name)
    every = Graded(numbers, categories, rows.images, torch.from_numpy(found.grades))
    parts = {
        name: every.select(torch.from_numpy(np.flatnonzero(splits == number)))
        for number, name in enumerate(split.NAMES)
    }
    gone = dropped(reading.bad)
    gone += [{"why": why, "rows": n} for why, n in rows.set_aside.items()]
    n_read = len(rows) + sum(entry["rows"] for entry in gone)
    history = {"rows": n_read, "dropped": gone, "left_out": left_out, "doubtful": doubtful}
    history["unknown"] = _unknown(rows, splits, columns, categories)
    some = columns if columns.numbers or columns.levels else None
    return dataset(parts, found.names, some, history)


def _unknown(
    rows: RawRows, splits: split.Assignment, columns: Columns, categories: Tensor
) -> dict[str, dict[str, int]]:
    """By split and column, how many values are none of train's: they are kept as missing ones."""
    found = {}
    for number in (split.VALIDATION, split.TEST):
        mine = splits == number
        table, places = rows.table.filter(pl.Series(mine)), categories[torch.from_numpy(mine)]
        found[split.NAMES[number]] = features.unknown(table, columns, places)
    return {name: counts for name, counts in found.items() if counts}


def dataset(
    parts: Mapping[str, Graded],
    names: Sequence[str],
    columns: Columns | None = None,
    history: Mapping[str, Any] | None = None,
) -> Dataset:
    """Prepared data of the three splits; rows are numbered from train over validation to test."""
    train = parts["train"]
    images = None if train.images is None else list(train.images.shape[1:])
    summary: dict[str, Any] = {name: _count(part, len(names)) for name, part in parts.items()}
    some = {name: part if len(part) else None for name, part in parts.items()}
    return Dataset(
        kind="graded",
        train=train,
        validation=some["validation"],
        test=some["test"],
        queries=Vocabulary.numbered(sum(map(len, parts.values()))),
        candidates=Vocabulary.numbered(len(names), names),
        columns=columns,
        summary=summary
        | {
            "grade_names": list(names),
            "numbers": train.numbers.shape[1],
            "categories": train.categories.shape[1],
            "images": images,
        }
        | dict(history or {}),
        fingerprint=folder.fingerprint_graded(some.values(), names, columns),
    )


def joined(data: Dataset, comm: Comm) -> Graded:
    """The rows of train, then those of validation; of several processes each gets its share.

    ``data`` is held whole.
    """
    train, validation = data.graded("train"), data.graded("validation")
    n = len(train)
    start, stop = comm.share(n + len(validation))
    first = train.part(min(start, n), min(stop, n))
    last = validation.part(max(start - n, 0), max(stop - n, 0))
    if len(first) == 0:
        return last
    return first.join(last) if len(last) else first


def hashes(rows: Graded) -> Tensor:
    """64 bits that stand for all that a row is, its grade too; [n] int64.

    Rows of the same columns, levels and grades have the same ones where they are equal.
    """
    found = [torch.zeros(0, dtype=torch.int64)]
    step = max(1, HASHED_BYTES // _bytes(rows.part(0, 1)).shape[1])
    for start in range(0, len(rows), step):
        content = _bytes(rows.part(start, start + step)).numpy()
        digests = b"".join(blake2b(row, digest_size=8).digest() for row in content)
        found.append(torch.frombuffer(bytearray(digests), dtype=torch.int64))
    return torch.cat(found)


def _bytes(rows: Graded) -> Tensor:
    """All that each row is; [n, W] uint8. There is one NaN, and one zero."""
    numbers = torch.where(rows.numbers.isnan(), torch.nan, rows.numbers + 0.0)
    parts = [numbers, rows.categories, rows.grades[:, None]]
    if rows.images is not None:
        parts.append(rows.images.flatten(1))
    return torch.cat([part.contiguous().view(torch.uint8) for part in parts], dim=1)


def _count(part: Graded, n_grades: int) -> dict[str, Any]:
    grades = torch.bincount(part.grades, minlength=n_grades)
    return {"rows": len(part), "grades": grades.tolist()}


def _learn(
    rows: RawRows, train: NDArray[np.bool_]
) -> tuple[Columns, list[dict[str, str]], list[dict[str, str]]]:
    """What the columns mean; which are left out, and which are categories in doubt, and why.

    Whether a column holds numbers or text is told from all rows; the rest from those of train.
    """
    numbers: list[str] = []
    levels: dict[str, tuple[str, ...]] = {}
    left_out, doubtful = dict(rows.without), dict[str, str]()
    mask = pl.Series(train)
    for name in sorted(set(rows.table.columns) - {LINE}):
        column = rows.table[name]
        found = features.understood(column, words=name in rows.words)
        if found is None:
            left_out[name] = f"it holds {column.dtype}"
            continue
        mine = found.filter(mask)
        is_text = mine.dtype == pl.String
        doubt = features.doubt(column, rows.table[LINE]) if is_text else None
        if (why := _useless(mine, column.filter(mask))) is not None:
            left_out[name] = why if doubt is None else f"{why}; {doubt}"
        elif is_text:
            levels[name] = features.levels_of(mine)
            if doubt is not None:
                doubtful[name] = doubt
        else:
            numbers.append(name)
    return Columns(tuple(numbers), levels), _told(left_out), _told(doubtful)


def _told(why: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"column": name, "why": why[name]} for name in sorted(why)]


def _useless(column: pl.Series, raw: pl.Series) -> str | None:
    """Why a column of the training rows cannot tell anything, if so; missing is a value as well."""
    n = column.n_unique()
    if column.count() == 0:
        numbers = features.to_numbers(raw, pl.Float64)
        if numbers is not None and numbers.count():
            return "its numbers are too large: Float32 ends at 3.4e38"
        return "it has no value in any training row"
    if n == 1:
        return "it has the same value in all training rows"
    if column.dtype == pl.String and n > max(MOST_LEVELS, len(column) / 2):
        return f"it is text with {n:,} different values in {len(column):,} training rows"
    return None
