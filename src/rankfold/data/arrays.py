"""Arrays by name, as an ``.npz`` file holds them: numbers, categories, images and grades of rows.

``X`` and ``features`` are other names of ``numbers``, ``y`` and ``labels`` of ``grades``. As
MedMNIST writes them, they may come once per split: ``train_images``, ``val_images``, ...
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from torch import Tensor

from rankfold.data.reading import LINE
from rankfold.errors import UserError

NAMES = {
    "numbers": ("numbers", "X", "features"),
    "categories": ("categories",),
    "images": ("images",),
    "grades": ("grades", "y", "labels"),
}
SPLITS = (("train_",), ("val_", "validation_"), ("test_",))
CHANNELS = 4  # at most: more of them are most likely a height or width
HINT = (
    "it may have numbers [n, F], categories [n, C], images [n, h, w] or [n, h, w, c] of uint8, "
    "grades [n]; or the same with train_, val_, test_ before"
)


class Understood(NamedTuple):
    """The rows of some arrays."""

    table: pl.DataFrame  # number_0, ..., category_0, ... and in ``LINE`` where each row stood
    grades: pl.Series | None
    images: Tensor | None
    words: frozenset[str]  # the columns of categories


def load(path: Path) -> dict[str, Any]:
    """All arrays of an ``.npz`` file; nothing in it is executed."""
    try:
        with path.open("rb") as raw:
            found = np.load(raw, allow_pickle=False)
            if not isinstance(found, Mapping):
                raise ValueError("it holds one array without a name")  # noqa: TRY301, TRY004
            return dict(found)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        objects = "Object arrays" in str(error)
        raise UserError(
            f"cannot read {path.name}: {'it holds objects' if objects else error}",
            hint="rows of unlike sizes, say images, cannot be read: bring them to one size"
            if objects
            else "is it complete, and is it what its name says?",
        ) from error


def check(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays, tensors or lists in memory as arrays."""
    try:
        return {str(name): np.asarray(value) for name, value in arrays.items()}
    except (ValueError, TypeError) as error:
        raise UserError(f"cannot read the arrays: {error}", hint=HINT) from error


def by_split(arrays: Mapping[str, Any], name: str) -> Iterator[tuple[int | None, dict[str, Any]]]:
    """The arrays of each split by their plain names; None: there are no splits."""
    known = {plain for names in NAMES.values() for plain in names}
    found = False
    for number, prefixes in enumerate(SPLITS):
        mine = {
            plain: arrays[prefix + plain]
            for prefix in prefixes
            for plain in sorted(known)
            if prefix + plain in arrays
        }
        if mine:
            found = True
            yield number, mine
    if not found:
        if not known & set(arrays):
            names = ", ".join(sorted(arrays)) or "nothing"
            raise UserError(f"{name} has no array of rows: it has {names}", hint=HINT)
        yield None, dict(arrays)


def understand(arrays: Mapping[str, Any], grade: str | None, name: str) -> Understood:
    """The rows of arrays by their plain names."""
    if grade is not None and grade not in arrays:
        names = ", ".join(sorted(arrays))
        raise UserError(f"{name} has no array {grade!r}", hint=f"it has {names}")
    picked = {role: _pick(arrays, names, name) for role, names in NAMES.items()}
    if grade is not None:
        picked["grades"] = arrays[grade]
    lengths = {role: len(a) for role, a in picked.items() if a is not None and a.ndim}
    if len(set(lengths.values())) != 1:
        raise UserError(f"the arrays of {name} have unlike numbers of rows: {lengths}", hint=HINT)
    (n,) = set(lengths.values())
    table = pl.DataFrame(
        {LINE: pl.select(pl.format("{}:{}", pl.lit(name), pl.int_range(n))).to_series()}
    )
    words = _columns(picked["categories"], "category", name)
    numbers = _columns(picked["numbers"], "number", name)
    for column, values in numbers.items():
        if not (np.issubdtype(values.dtype, np.number) or values.dtype == np.bool_):
            raise UserError(f"the numbers of {name} are {values.dtype}", hint=HINT)
        table = table.with_columns(_series(column, values))
    for column, values in words.items():
        table = table.with_columns(_categories(column, values, name))
    return Understood(
        table, _grades(picked["grades"], name), _images(picked["images"], name), frozenset(words)
    )


def _pick(arrays: Mapping[str, Any], names: tuple[str, ...], file: str) -> Any:
    found = [name for name in names if name in arrays]
    if len(found) > 1:
        raise UserError(f"{file} has both {found[0]} and {found[1]}", hint="they mean the same")
    return arrays[found[0]] if found else None


def _columns(values: Any, name: str, file: str) -> dict[str, Any]:
    """The columns of [n, F]; their numbers have equal lengths, so that names ascend as they do."""
    if values is None:
        return {}
    if values.ndim != 2:
        raise UserError(f"an array of {file} is of shape {values.shape}, not [n, F]", hint=HINT)
    digits = len(str(max(values.shape[1] - 1, 0)))
    return {
        f"{name}_{i:0{digits}}": np.ascontiguousarray(values[:, i]) for i in range(values.shape[1])
    }


def _categories(name: str, values: Any, file: str) -> pl.Series:
    """Text, or whole numbers, of which those below 0 are missing."""
    column = _series(name, values)
    if column.dtype.is_integer():
        return pl.select(pl.when(column >= 0).then(column.cast(pl.String)).alias(name)).to_series()
    if column.dtype != pl.String:
        raise UserError(
            f"the categories of {file} are {values.dtype}", hint="they are whole numbers or text"
        )
    return column


def _grades(values: Any, file: str) -> pl.Series | None:
    if values is None:
        return None
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise UserError(f"the grades of {file} are of shape {values.shape}, not [n]", hint=HINT)
    return _series("grades", values.tolist() if values.dtype == object else values)


def _series(name: str, values: Any) -> pl.Series:
    try:
        return pl.Series(name, values, strict=False)
    except ValueError as error:  # polars knows times in some units alone
        raise UserError(
            f"cannot read arrays of {values.dtype}", hint="write them as numbers or text"
        ) from error


def _images(values: Any, file: str) -> Tensor | None:
    if values is None:
        return None
    if values.ndim == 3:
        values = values[..., None]
    if values.ndim != 4 or not 1 <= values.shape[3] <= CHANNELS:
        raise UserError(
            f"the images of {file} are of shape {list(values.shape)}",
            hint="it is [n, height, width] or [n, height, width, channels], channels last",
        )
    if values.dtype != np.uint8:
        raise UserError(
            f"the images of {file} are of type {values.dtype}", hint="pixels are uint8, 0 to 255"
        )
    return torch.from_numpy(np.ascontiguousarray(values))
