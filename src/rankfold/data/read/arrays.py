"""Arrays by name, as an ``.npz`` file holds them: numbers, categories, images and grades of rows.

``X`` and ``features`` are other names of ``numbers``, ``y`` and ``labels`` of ``grades``. As
MedMNIST writes them, they may come once per split: ``train_images``, ``val_images``, ... Grades
may also be under a name that is asked for.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.lib.format import MAGIC_PREFIX as ONE_ARRAY
from numpy.lib.format import read_array
from torch import Tensor

from rankfold.data.read.files import LINE
from rankfold.data.read.tables import listing
from rankfold.errors import UserError

NAMES = {
    "numbers": ("numbers", "X", "features"),
    "categories": ("categories",),
    "images": ("images",),
    "grades": ("grades", "y", "labels"),
}
KNOWN = frozenset(name for names in NAMES.values() for name in names)
SPLITS = (("train_",), ("val_", "validation_"), ("test_",))
SAME = "they mean the same"
SUFFIX = ".npy"  # of each array in the archive
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
    others: frozenset[str]  # arrays of a value per row that mean nothing: they could be grades


def load(path: Path) -> dict[str, Any]:
    """All arrays of an ``.npz`` file; nothing in it is executed."""
    try:
        with path.open("rb") as raw:
            if raw.read(len(ONE_ARRAY)) == ONE_ARRAY:
                raise ValueError("it holds one array without a name")  # noqa: TRY301
            return _members(raw)
    except MemoryError as error:  # a damaged size would do it too
        raise UserError(
            f"cannot read {path.name}: its arrays are said to take more memory than there is",
            hint="write them in parts; if they are smaller, the file is damaged",
        ) from error
    except Exception as error:
        raise _unreadable(path, error) from error


def _members(raw: BinaryIO) -> dict[str, Any]:
    """The arrays of a zip archive, each read to its end: the checksum is compared there."""
    found = {}
    with zipfile.ZipFile(raw) as archive:
        for name in archive.namelist():
            with archive.open(name) as member:  # which compares the two places of its name
                if not name.endswith(SUFFIX):
                    continue
                found[name.removesuffix(SUFFIX)] = read_array(member, allow_pickle=False)
                if member.read():
                    raise ValueError(f"there is more of {name} than its array")
    return found


def _unreadable(path: Path, error: Exception) -> UserError:
    """What zipfile, its decompressors and numpy raise on damage is of many kinds."""
    if isinstance(error, OSError) and error.filename is not None:
        return UserError(f"cannot read {path.name}: {error.strerror}", hint="may you read it?")
    if "Object arrays" in str(error):
        hint = "rows of unlike sizes, say images, cannot be read: bring them to one size"
        return UserError(f"cannot read {path.name}: it holds objects", hint=hint)
    why = str(error) or "it ends too early"
    if _is_archive(path):
        return UserError(f"{path.name} is damaged: {why}", hint="copy or download it again")
    hint = "is it complete, and is it what its name says?"
    return UserError(f"cannot read {path.name}: {why}", hint=hint)


def _is_archive(path: Path) -> bool:
    """Whether a file begins, or ends, as a zip archive does."""
    with path.open("rb") as raw:
        return raw.read(2) == b"PK" or zipfile.is_zipfile(raw)


def check(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays, tensors or lists in memory as arrays."""
    try:
        return {str(name): np.asarray(value) for name, value in arrays.items()}
    except (ValueError, TypeError) as error:
        raise UserError(f"cannot read the arrays: {error}", hint=HINT) from error


def by_split(
    arrays: Mapping[str, Any], grade: str | None, name: str
) -> list[tuple[int | None, dict[str, Any]]]:
    """The arrays of each split by their plain names; None: there are no splits.

    ``grade`` is the name of the grades, where it is another than the usual ones.
    """
    known = KNOWN if grade is None else KNOWN | {grade}
    parts: list[tuple[int | None, dict[str, Any]]] = [(None, dict(arrays))]
    if _has_splits(arrays, known, name):
        every = [_plain(arrays, prefixes, name) for prefixes in SPLITS]
        parts = [(number, part) for number, part in enumerate(every) if known & set(part)]
    for number, part in parts:
        if grade is not None and grade not in part:
            missing = grade if number is None else SPLITS[number][0] + grade
            hint = f"it has {', '.join(sorted(arrays))}"
            raise UserError(f"{name} has no array {missing!r}", hint=hint)
    return parts


def _has_splits(arrays: Mapping[str, Any], known: frozenset[str], file: str) -> bool:
    """Whether the known arrays come once per split; they must not come both ways."""
    prefixes = tuple(prefix for names in SPLITS for prefix in names)
    whole = sorted(name for name in known & set(arrays) if not name.startswith(prefixes))
    of_splits = [p + name for p in prefixes for name in sorted(known) if p + name in arrays]
    if whole and of_splits:
        raise UserError(
            f"{file} has both {whole[0]} and {of_splits[0]}",
            hint="its rows are in splits or they are not: take the arrays of either out",
        )
    if not whole and not of_splits:
        names = ", ".join(sorted(arrays)) or "nothing"
        raise UserError(f"{file} has no array of rows: it has {names}", hint=HINT)
    return bool(of_splits)


def _plain(arrays: Mapping[str, Any], prefixes: Sequence[str], file: str) -> dict[str, Any]:
    """The arrays with one of the prefixes, by their names without it."""
    found: dict[str, str] = {}
    for prefix in prefixes:
        for name in arrays:
            if name.startswith(prefix):
                before = found.setdefault(name.removeprefix(prefix), name)
                if before != name:
                    raise UserError(f"{file} has both {before} and {name}", hint=SAME)
    return {plain: arrays[name] for plain, name in found.items()}


def where_grades(parts: Sequence[Understood]) -> str:
    """A hint for rows without grades: what could be these in all parts."""
    could_be = sorted(frozenset.intersection(*(part.others for part in parts)))
    if could_be:
        return f"{listing(could_be)}; use --grade-column NAME"
    return "none of its arrays could be grades: add grades [n], with splits to each of them"


def understand(arrays: Mapping[str, Any], grade: str | None, name: str) -> Understood:
    """The rows of arrays by their plain names."""
    wanted = NAMES if grade is None else NAMES | {"grades": (grade,)}
    picked = {role: _pick(arrays, names, name) for role, names in wanted.items()}
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
    per_row = {plain for plain, values in arrays.items() if values.shape in ((n,), (n, 1))}
    return Understood(
        table=table,
        grades=_grades(picked["grades"], name),
        images=_images(picked["images"], name),
        words=frozenset(words),
        others=frozenset(per_row - KNOWN),
    )


def _pick(arrays: Mapping[str, Any], names: tuple[str, ...], file: str) -> Any:
    found = [name for name in names if name in arrays]
    if len(found) > 1:
        raise UserError(f"{file} has both {found[0]} and {found[1]}", hint=SAME)
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
