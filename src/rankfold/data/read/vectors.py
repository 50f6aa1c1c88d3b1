"""Vectors made elsewhere, by key: ``.npy``, ``.npz``, Parquet or Arrow.

| file | content |
|---|---|
| ``.npy`` | [n, D], one row for each of the keys 0, 1, ... |
| ``.npz`` | ``vectors`` [n, D] and, optionally, ``keys`` [n] |
| ``.parquet``, ``.arrow`` | a column ``key`` and a column ``vector`` of lists or arrays |

For two sides, an ``.npz`` has ``query_vectors``, ``query_keys``, ``candidate_vectors`` and
``candidate_keys``; a table has one more column, ``side``: ``query`` or ``candidate``.
"""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankfold.data.read.values import canonical, check_distinct
from rankfold.errors import UserError
from rankfold.types import Vocabulary

_HINT = "an .npz has `vectors` and `keys`; Parquet has the columns `key` and `vector`"
_SIDES = ("query", "candidate")


class KeyedVectors(NamedTuple):
    """Some keys, and a vector for each."""

    name: str
    keys: pl.Series
    vectors: NDArray[np.float32]  # [n, D]

    def of(self, keys: Vocabulary) -> tuple[Tensor, Tensor]:
        """The vectors of some keys that have one [m, D], and the rows of these keys [m]."""
        rows = keys.find(self.keys)
        places = (rows >= 0).nonzero().flatten()
        return torch.from_numpy(self.vectors[places.numpy()]), rows[places]


def read_vectors(path: Path) -> KeyedVectors:
    """The vectors of a file without sides."""
    parts = _parts(path)
    if "" not in parts:
        raise UserError(f"{path} has vectors of queries and candidates, not of rows", hint=_HINT)
    return _checked(path, "", *parts[""])


def read_both_sides(path: Path) -> dict[str, KeyedVectors]:
    """The vectors of queries and of candidates, which must have the same width."""
    parts = _parts(path)
    if missing := [side for side in _SIDES if side not in parts]:
        raise UserError(
            f"{path} has no vectors of {' and '.join(f'a {side}' for side in missing)}",
            hint="an .npz has query_vectors, query_keys, candidate_vectors and candidate_keys; "
            "Parquet has the columns side, key and vector",
        )
    both = {side: _checked(path, side, *parts[side]) for side in _SIDES}
    widths = [part.vectors.shape[1] for part in both.values()]
    if len({*widths}) > 1:
        raise UserError(
            f"{path} has vectors of width {widths[0]} for queries and {widths[1]} for candidates",
            hint="both sides need the same encoder",
        )
    return both


def _parts(path: Path) -> dict[str, tuple[Any, Any]]:
    """Keys, or None, and vectors by side; without sides by the empty name."""
    if not path.is_file():
        raise UserError(f"{path} does not exist", hint="name a file of vectors")
    try:
        if path.suffix == ".npy":
            return {"": (None, np.load(path, mmap_mode="r", allow_pickle=False))}
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                return _arrays(path, dict(arrays))
        table = pl.read_ipc(path) if path.suffix == ".arrow" else pl.read_parquet(path)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, pl.exceptions.PolarsError) as error:
        raise UserError(f"{path} cannot be read: {error}", hint=_HINT) from error
    return _columns(path, table)


def _arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> dict[str, tuple[Any, Any]]:
    parts = {
        side: (arrays.get(f"{prefix}keys"), arrays[f"{prefix}vectors"])
        for side, prefix in (("", ""), *((side, f"{side}_") for side in _SIDES))
        if f"{prefix}vectors" in arrays
    }
    if not parts:
        raise UserError(f"{path} has the arrays {', '.join(arrays) or 'none'}", hint=_HINT)
    return parts


def _columns(path: Path, table: pl.DataFrame) -> dict[str, tuple[Any, Any]]:
    if missing := [name for name in ("key", "vector") if name not in table.columns]:
        raise UserError(f"{path} has no column {missing[0]!r}", hint=_HINT)
    if "side" not in table.columns:
        return {"": (table["key"], table["vector"])}
    by_side = table.partition_by("side", as_dict=True)
    return {str(side): (part["key"], part["vector"]) for (side,), part in by_side.items()}


def _checked(path: Path, side: str, keys: Any, given: Any) -> KeyedVectors:
    what = f"the {side} vectors of {path}" if side else f"the vectors of {path}"
    vectors = _as_rows(what, given)
    if not np.isfinite(vectors).all():
        raise UserError(f"{what} have infinite or missing numbers", hint="leave such rows out")
    listed = pl.Series(np.arange(len(vectors)) if keys is None else keys)
    listed = listed.cast(pl.Int64 if listed.dtype.is_integer() else pl.String)
    if len(listed) != len(vectors):
        raise UserError(f"{what}: {len(listed):,} keys and {len(vectors):,} vectors", hint=_HINT)
    own = canonical(listed)
    check_distinct(own, f"{path} has the {side or 'key'}", "each key has one vector")
    return KeyedVectors(path.name, own, vectors)


def _as_rows(what: str, given: Any) -> NDArray[np.float32]:
    """[n, D]; a UserError for vectors of different lengths, or values that are not numbers."""
    if isinstance(given, pl.Series):
        widths = given.list.len() if isinstance(given.dtype, pl.List) else None
        if widths is not None and widths.n_unique() > 1:
            raise UserError(f"{what} have different lengths", hint="all need the same width")
        if widths is not None and len(given):
            given = given.list.to_array(int(widths[0] or 0))
        given = given.to_numpy()
    try:
        vectors = np.asarray(given).astype(np.float32, copy=False)
    except (ValueError, TypeError):
        raise UserError(f"{what} are not numbers", hint=_HINT) from None
    if vectors.ndim != 2 or 0 in vectors.shape:
        raise UserError(f"{what} have the shape {list(vectors.shape)}", hint="expected [n, width]")
    return vectors
