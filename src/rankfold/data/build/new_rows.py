"""New rows for a fitted model of graded rows, by the columns that the model knows."""

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankfold import storage
from rankfold.data.build import features
from rankfold.data.build.grades import as_words, canonical, to_numbers
from rankfold.data.read.bad_rows import BadRows
from rankfold.data.read.columns import listing
from rankfold.data.read.graded_rows import RowOptions, check_not_empty, read_all
from rankfold.data.read.images import ImageShape
from rankfold.data.read.reading import LINE, Reading
from rankfold.data.read.results import RawRows
from rankfold.errors import UserError
from rankfold.types import Columns, Graded

Value = str | int | float | bool | None
Record = Mapping[str, Value]
_INFINITE = 2.0**128 - 2.0**103  # from here on float32 is infinite
_SHOWN_COLUMNS = 20  # of the known ones, in a hint


class NewRows(NamedTuple):
    """Rows for a fitted model."""

    rows: Graded
    keys: pl.Series | range  # the key column, else the paths of image files, else row numbers
    unknown: Mapping[str, int] = {}  # columns of categories with unknown values, and their counts


def read_rows(
    source: Any,
    columns: Columns | None,
    *,
    key_column: str | None = None,
    usual_key: str | None = None,
    image_shape: tuple[int, int, int] | None = None,
    grade_column: str | None = None,
    grades: Sequence[str] = (),
    reading: Reading | None = None,
) -> NewRows:
    """Read new rows by the columns of a model; unknown categories become -1.

    Args:
        source: a path or a glob (tables, an .npz, a folder of images or its files, KEEL files), or
            a table in memory.
        columns: the schema of the model; None: it takes images only.
        key_column: the column that identifies the rows, which may be a feature too.
        usual_key: that column if the table has it and no ``key_column`` is given. Without one,
            rows are numbered from 0 (bad rows count), and images have their paths relative to the
            folder, or to the fixed part of a glob.
        image_shape: height, width and channels of the images that the model takes, if it does.
        grade_column: the column of grades of a table; other formats define it themselves.
        grades: the names of the grades, lowest first, to read grades. A row of another grade or
            without one has the grade -1, as have all rows without this argument.
        reading: collects bad rows, which are dropped; without it they are a UserError.
    """
    known = Columns((), {}) if columns is None else columns
    with storage.scratch() as scratch:
        used = Reading(scratch) if reading is None else reading
        shape = None if image_shape is None else ImageShape(*image_shape)
        wanted = (*known.numbers, *known.levels)
        options = RowOptions(
            grade_column, key_column, shape, numbered=True, wanted=wanted, usual_key=usual_key
        )
        rows, keys = _with_keys(read_all([(None, source)], options, used), used.bad)
    if reading is None and used.bad.counts:
        raise UserError(f"bad rows: {'; '.join(used.bad.describe())}", hint="correct them")
    _check_columns(rows, known)
    numbers, categories = features.fill(rows.table, known, rows.name)
    _check_sizes(rows, known, numbers)
    images = None
    if image_shape is not None:
        images = rows.images
        _check_images(rows, image_shape)
    places = torch.full((len(rows),), -1)
    if grades and rows.grades is not None:
        places = torch.from_numpy(to_numbers(as_words(rows.grades, grades), canonical(grades)))
    unknown = features.unknown(rows.table, known, categories)
    return NewRows(Graded(numbers, categories, images, places), keys, unknown)


def _with_keys(rows: RawRows, bad: BadRows) -> tuple[RawRows, pl.Series]:
    """The rows with a key, and their keys; the others are recorded."""
    assert rows.keys is not None
    missing = rows.keys.is_null()
    bad.add_rows("a missing key", rows.table[LINE].filter(missing))
    kept = rows.take(~missing.to_numpy())
    check_not_empty(kept, bad)
    return kept, rows.keys.filter(~missing)


def _check_columns(rows: RawRows, columns: Columns) -> None:
    wanted = (*columns.numbers, *columns.levels)
    missing = [name for name in wanted if name not in rows.table.columns]
    if missing:
        names = [name for name in rows.table.columns if name != LINE]
        plural = "" if len(missing) == 1 else "s"
        raise UserError(
            f"{rows.name} has no column{plural} {', '.join(map(repr, missing))}, which "
            "the model was fitted with",
            hint=f"{listing(names) if names else 'it has no columns'}; values may be empty",
        )


def _check_sizes(rows: RawRows, columns: Columns, numbers: Tensor) -> None:
    """A UserError for a number that is too large, as ``read_records`` has; it is NaN here."""
    for place in torch.nonzero(numbers.isnan().any(dim=0)).flatten().tolist():
        column = rows.table[columns.numbers[place]]
        too_large = features.too_large(column)
        if too_large.any():
            first = too_large.arg_max()
            assert first is not None
            raise UserError(
                f"column {column.name!r} of {rows.name} must be between -{_INFINITE:.3g} and "
                f"{_INFINITE:.3g}, got {column[first]} ({rows.table[LINE][first]})",
                hint="an empty value is a missing value",
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
            f"the images of {rows.name} have shape {' x '.join(map(str, rows.images.shape[1:]))}, "
            f"but the model takes {wanted}",
            hint="name a folder of images: they are resized",
        )


# ---------------------------------------------------------------------------------- records


def are_records(source: Any) -> bool:
    """Whether this is a list of mappings, and not a table or a path."""
    return isinstance(source, list | tuple) and all(isinstance(row, Mapping) for row in source)


def read_records(records: Sequence[Record], columns: Columns) -> NewRows:
    """Rows by the columns of a model. A missing column, null and an unknown level count as missing.

    A column that the model does not know, or a value of the wrong type, is a UserError.
    """
    _check_records(records, columns)
    values = [  # ``_check_records`` has refused texts
        nan if value is None else float(value)
        for row in records
        for value in map(row.get, columns.numbers)
    ]
    places = [
        features.place_of(levels, row.get(name))
        for row in records
        for name, levels in columns.levels.items()
    ]
    n = len(records)
    numbers = np.array(values, dtype=np.float32).reshape(n, len(columns.numbers))
    categories = np.array(places, dtype=np.int32).reshape(n, len(columns.levels))
    rows = Graded(
        torch.from_numpy(numbers), torch.from_numpy(categories), None, torch.full((n,), -1)
    )
    unknown = _unknown(records, columns, categories) if -1 in places else {}
    return NewRows(rows, range(n), unknown)


def _check_records(records: Sequence[Record], columns: Columns) -> None:
    """A UserError for the first value that the model cannot take."""
    numbers = set(columns.numbers)
    for place, row in enumerate(records):
        for name, value in row.items():
            if name not in numbers and name not in columns.levels:
                known = ", ".join([*columns.numbers, *columns.levels][:_SHOWN_COLUMNS])
                raise UserError(f"row {place}: unknown column {name!r}", hint=f"known: {known}")
            if value is not None and isinstance(value, str) == (name in numbers):
                wanted = "a number" if name in numbers else "a text"
                raise UserError(
                    f"row {place}: {name!r} must be {wanted}, got {value!r:.100}",
                    hint="null is a missing value",
                )
            if isinstance(value, int | float) and abs(value) >= _INFINITE:
                raise UserError(
                    f"row {place}: {name!r} must be between -{_INFINITE:.3g} and {_INFINITE:.3g}, "
                    f"got {value:g}",
                    hint="null is a missing value",
                )


def _unknown(
    records: Sequence[Record], columns: Columns, categories: NDArray[np.int32]
) -> dict[str, int]:
    """How many values of each column are not levels of the model."""
    counts = {
        name: sum(bool(row.get(name)) for row, own in zip(records, places, strict=True) if own < 0)
        for name, places in zip(columns.levels, categories.T, strict=True)
    }
    return {name: n for name, n in counts.items() if n}
