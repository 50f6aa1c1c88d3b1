"""Tables that are in memory already: polars, pandas, Arrow, scipy.sparse, arrays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import polars as pl
import torch

from rankfold.data.folder import fingerprint
from rankfold.errors import UserError
from rankfold.types import Dataset, Interactions, Vocabulary

ACCEPTED = (
    "a path, a polars, pandas or Arrow table, a scipy.sparse matrix or an array of 2 or 3 columns"
)


def to_frame(table: Any) -> pl.LazyFrame:
    """Any accepted table as a lazy frame."""
    if isinstance(table, pl.LazyFrame):
        return table
    if isinstance(table, pl.DataFrame):
        return table.lazy()
    if is_sparse(table):
        entries = _summed(table).tocoo()
        columns = {"query": entries.row, "candidate": entries.col, "grade": entries.data}
        return pl.LazyFrame(columns)
    if hasattr(table, "__arrow_c_stream__"):
        with _understood(table):
            return pl.DataFrame(table).lazy()
    if isinstance(table, tuple | list | np.ndarray | torch.Tensor):
        return _from_arrays(table)
    raise UserError(f"cannot read a table from {type(table).__name__}", hint=f"pass {ACCEPTED}")


def is_sparse(table: Any) -> bool:
    return hasattr(table, "tocoo") and hasattr(table, "tocsr")


def from_sparse(matrix: Any) -> Dataset:
    """A scipy.sparse matrix as training data: row and column numbers are the keys."""
    rows = _summed(matrix)
    grades = torch.from_numpy(np.asarray(rows.data, dtype=np.float32))
    if not bool(((grades > 0) & (grades < torch.inf)).all()):  # also where one is NaN
        raise UserError(
            "the matrix has negative, infinite or missing entries",
            hint="grades are numbers above 0",
        )
    if len(grades) == 0:
        raise UserError("the matrix has no entries", hint="is it the right one?")
    train = Interactions(
        torch.from_numpy(rows.indptr.astype(np.int64)),
        torch.from_numpy(rows.indices.astype(np.int32 if max(rows.shape) < 2**31 else np.int64)),
        None if bool((grades == 1).all()) else grades,
        rows.shape[1],
    )
    queries, candidates = (Vocabulary.numbered(size) for size in rows.shape)
    content = fingerprint([train, None, None], queries.keys, candidates.keys)
    return Dataset("interactions", train, None, None, queries, candidates, fingerprint=content)


def _summed(matrix: Any) -> Any:
    """A CSR of its own, in order; entries of one place are added up, zeros are none."""
    rows = matrix.tocsr().copy()
    rows.sum_duplicates()
    rows.eliminate_zeros()
    rows.sort_indices()
    return rows


def _from_arrays(table: Any) -> pl.LazyFrame:
    """``[n, 2]``, ``[n, 3]`` or two or three arrays of equal length: query, candidate, grade."""
    listed = isinstance(table, tuple | list)
    if listed and any(isinstance(column, tuple) for column in table):
        raise UserError("cannot tell rows from columns", hint="pass an array of 2 or 3 columns")
    columns = list(table) if listed else list(_array(table).T)
    columns = [_array(column) for column in columns]
    if len(columns) not in (2, 3) or any(c.ndim != 1 or len(c) != len(columns[0]) for c in columns):
        shape = [column.shape for column in columns[:4]]
        raise UserError(
            f"cannot read pairs from arrays of shape {shape}",
            hint="pass two or three arrays of equal length: query, candidate and, if any, grade",
        )
    plain = (column.tolist() if column.dtype == object else column for column in columns)
    named = dict(zip(("query", "candidate", "grade"), plain, strict=False))
    with _understood(table):
        return pl.LazyFrame(named)


def _array(values: Any) -> np.ndarray[Any, Any]:
    with _understood(values):
        return np.asarray(values.detach() if isinstance(values, torch.Tensor) else values)


@contextmanager
def _understood(table: Any) -> Iterator[None]:
    """A table that is none, or holds what is none, is a UserError."""
    try:
        yield
    except ImportError as error:
        raise UserError(str(error), hint="pip install pyarrow, or pass a polars table") from error
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        name = type(table).__name__
        raise UserError(f"cannot read the {name}: {error}", hint=f"pass {ACCEPTED}") from error
