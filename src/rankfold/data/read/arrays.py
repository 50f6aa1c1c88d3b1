"""Arrays by name, as in an ``.npz`` file: numbers, categories, images and grades of rows.

``X`` and ``features`` are other names of ``numbers``, ``y`` and ``labels`` of ``grades``. There may
be one array per split, as in MedMNIST: ``train_images``, ``val_images``, ... The caller may name
another array of grades.
"""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl
import torch
from numpy.lib.format import MAGIC_PREFIX as NPY_PREFIX
from numpy.lib.format import read_array
from torch import Tensor

from rankfold.data.read.columns import listing
from rankfold.data.read.reading import LINE
from rankfold.data.read.results import RawRows
from rankfold.errors import UserError

NAMES = {
    "numbers": ("numbers", "X", "features"),
    "categories": ("categories",),
    "images": ("images",),
    "grades": ("grades", "y", "labels"),
}
_KNOWN_NAMES = frozenset(name for names in NAMES.values() for name in names)
SPLIT_PREFIXES = (("train_",), ("val_", "validation_"), ("test_",))
_SAME = "they mean the same: remove one"
_SUFFIX = ".npy"  # of each array in the archive
_MAX_CHANNELS = 4  # more of them are most likely a height or width
HINT = (
    "expected numbers [n, F], categories [n, C], images [n, h, w] or [n, h, w, c] of uint8, "
    "grades [n]; or the same with the prefixes train_, val_, test_"
)


def load(path: Path) -> dict[str, Any]:
    """All arrays of an ``.npz`` file; nothing in it is executed."""
    try:
        with path.open("rb") as raw:
            if raw.read(len(NPY_PREFIX)) == NPY_PREFIX:
                raise ValueError("it holds one unnamed array")  # noqa: TRY301
            return _members(raw)
    except MemoryError as error:  # also raised for a damaged size
        raise UserError(
            f"cannot read {path.name}: its arrays need more memory than is available",
            hint="split the file; if its arrays are smaller, it is damaged",
        ) from error
    except Exception as error:
        raise _unreadable(path, error) from error


def _members(raw: BinaryIO) -> dict[str, Any]:
    """The arrays of a zip archive. Each is read to its end, where the checksum is compared."""
    members = {}
    with zipfile.ZipFile(raw) as archive:
        for name in archive.namelist():
            with archive.open(name) as member:  # compares the name in both headers
                if not name.endswith(_SUFFIX):
                    continue
                members[name.removesuffix(_SUFFIX)] = read_array(member, allow_pickle=False)
                if member.read():
                    raise ValueError(f"{name} has bytes after its array")
    return members


def _unreadable(path: Path, error: Exception) -> UserError:
    """A UserError for any of the errors of zipfile, its decompressors and numpy."""
    if isinstance(error, OSError) and error.filename is not None:
        return UserError(f"cannot read {path.name}: {error.strerror}", hint="check its permissions")
    if "Object arrays" in str(error):
        hint = "rows of different sizes (for example images) cannot be read: resize them"
        return UserError(f"cannot read {path.name}: it holds Python objects", hint=hint)
    why = str(error) or "it ends too early"
    with path.open("rb") as raw:
        is_archive = raw.read(2) == b"PK" or zipfile.is_zipfile(raw)  # its start, or its end
    if is_archive:
        return UserError(f"{path.name} is damaged: {why}", hint="copy or download it again")
    hint = "is the file complete, and does its suffix match its format?"
    return UserError(f"cannot read {path.name}: {why}", hint=hint)


def check(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays, tensors or lists in memory as numpy arrays."""
    try:
        return {str(name): np.asarray(value) for name, value in arrays.items()}
    except (ValueError, TypeError) as error:
        raise UserError(f"cannot read the arrays: {error}", hint=HINT) from error


def by_split(
    arrays: Mapping[str, Any], grade: str | None, name: str
) -> list[tuple[int | None, dict[str, Any]]]:
    """The arrays of each split by their plain names; None in place of a split: there are none.

    ``grade`` names the array of grades; None: one of the usual names.
    """
    known = _KNOWN_NAMES if grade is None else _KNOWN_NAMES | {grade}
    parts: list[tuple[int | None, dict[str, Any]]] = [(None, dict(arrays))]
    if _has_splits(arrays, known, name):
        splits = [_plain(arrays, prefixes, name) for prefixes in SPLIT_PREFIXES]
        parts = [(number, part) for number, part in enumerate(splits) if known & set(part)]
    for number, part in parts:
        if grade is not None and grade not in part:
            missing = grade if number is None else SPLIT_PREFIXES[number][0] + grade
            hint = f"it has {', '.join(sorted(arrays))}"
            raise UserError(f"{name} has no array {missing!r}", hint=hint)
    return parts


def _has_splits(arrays: Mapping[str, Any], known: frozenset[str], file: str) -> bool:
    """Whether there is one array per split; a UserError if there are both kinds."""
    prefixes = tuple(prefix for names in SPLIT_PREFIXES for prefix in names)
    plain = sorted(name for name in known & set(arrays) if not name.startswith(prefixes))
    of_splits = [p + name for p in prefixes for name in sorted(known) if p + name in arrays]
    if plain and of_splits:
        raise UserError(
            f"{file} has both {plain[0]} and {of_splits[0]}",
            hint="either all arrays have the prefix of a split or none has",
        )
    if not plain and not of_splits:
        names = ", ".join(sorted(arrays)) or "no arrays"
        raise UserError(f"{file} has no array of rows: it has {names}", hint=HINT)
    return bool(of_splits)


def _plain(arrays: Mapping[str, Any], prefixes: Sequence[str], file: str) -> dict[str, Any]:
    """The arrays with one of the prefixes, by their names without it."""
    sources: dict[str, str] = {}
    for prefix in prefixes:
        for name in arrays:
            if name.startswith(prefix):
                other = sources.setdefault(name.removeprefix(prefix), name)
                if other != name:
                    raise UserError(f"{file} has both {other} and {name}", hint=_SAME)
    return {plain: arrays[name] for plain, name in sources.items()}


def grade_hint(parts: Sequence[Mapping[str, Any]], lengths: Sequence[int]) -> str:
    """A hint for rows without grades: the arrays of all parts with one value per row."""
    per_row = [
        {name for name, values in part.items() if values.shape in ((n,), (n, 1))}
        for part, n in zip(parts, lengths, strict=True)
    ]
    could_be = sorted(set.intersection(*per_row) - _KNOWN_NAMES)
    if could_be:
        return f"{listing(could_be)}; use --grade-column NAME"
    return "none of its arrays could be grades: add grades [n], one per split if there are splits"


def to_rows(arrays: Mapping[str, Any], grade: str | None, name: str) -> RawRows:
    """The rows of arrays, which have their plain names.

    Their columns are number_0, ... and category_0, ...
    """
    wanted = NAMES if grade is None else NAMES | {"grades": (grade,)}
    picked = {role: _pick(arrays, names, name) for role, names in wanted.items()}
    lengths = {role: len(a) for role, a in picked.items() if a is not None and a.ndim}
    if len(set(lengths.values())) != 1:
        raise UserError(f"the arrays of {name} have different row counts: {lengths}", hint=HINT)
    (n,) = set(lengths.values())
    table = pl.select(pl.format("{}:{}", pl.lit(name), pl.int_range(n)).alias(LINE))
    words = _columns(picked["categories"], "category", name)
    numbers = _columns(picked["numbers"], "number", name)
    for column, values in numbers.items():
        if not (np.issubdtype(values.dtype, np.number) or values.dtype == np.bool_):
            raise UserError(f"the numbers of {name} have type {values.dtype}", hint=HINT)
        table = table.with_columns(_series(column, values))
    for column, values in words.items():
        table = table.with_columns(_categories(column, values, name))
    return RawRows(
        name=name,
        table=table,
        grades=_grades(picked["grades"], name),
        images=_images(picked["images"], name),
        words=frozenset(words),
    )


def _pick(arrays: Mapping[str, Any], names: tuple[str, ...], file: str) -> Any:
    present = [name for name in names if name in arrays]
    if len(present) > 1:
        raise UserError(f"{file} has both {present[0]} and {present[1]}", hint=_SAME)
    return arrays[present[0]] if present else None


def _columns(values: Any, name: str, file: str) -> dict[str, Any]:
    """The columns of [n, F] by name; padded numbers keep their order when sorted by name."""
    if values is None:
        return {}
    if values.ndim != 2:
        raise UserError(f"an array of {file} has shape {values.shape}, not [n, F]", hint=HINT)
    digits = len(str(max(values.shape[1] - 1, 0)))
    return {
        f"{name}_{i:0{digits}}": np.ascontiguousarray(values[:, i]) for i in range(values.shape[1])
    }


def _categories(name: str, values: Any, file: str) -> pl.Series:
    """Text, or whole numbers; negative ones are missing."""
    column = _series(name, values)
    if column.dtype.is_integer():
        return pl.select(pl.when(column >= 0).then(column.cast(pl.String)).alias(name)).to_series()
    if column.dtype != pl.String:
        raise UserError(
            f"the categories of {file} have type {values.dtype}",
            hint="expected whole numbers or text",
        )
    return column


def _grades(values: Any, file: str) -> pl.Series | None:
    if values is None:
        return None
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise UserError(f"the grades of {file} have shape {values.shape}, not [n]", hint=HINT)
    return _series("grades", values.tolist() if values.dtype == object else values)


def _series(name: str, values: Any) -> pl.Series:
    try:
        return pl.Series(name, values, strict=False)
    except ValueError as error:  # polars does not know all units of time
        raise UserError(
            f"cannot read arrays of type {values.dtype}", hint="write them as numbers or text"
        ) from error


def _images(values: Any, file: str) -> Tensor | None:
    if values is None:
        return None
    if values.ndim == 3:
        values = values[..., None]
    if values.ndim != 4 or not 1 <= values.shape[3] <= _MAX_CHANNELS:
        raise UserError(
            f"the images of {file} have shape {list(values.shape)}",
            hint="expected [n, height, width] or [n, height, width, channels]",
        )
    if values.dtype != np.uint8:
        raise UserError(
            f"the images of {file} have type {values.dtype}", hint="expected uint8, 0 to 255"
        )
    return torch.from_numpy(np.ascontiguousarray(values))
