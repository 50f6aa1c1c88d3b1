"""Tables that are in memory already: polars, pandas, Arrow, scipy.sparse, arrays."""

from __future__ import annotations

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
        entries = table.tocoo()
        columns = {"query": entries.row, "candidate": entries.col, "grade": entries.data}
        return pl.LazyFrame(columns).filter(pl.col("grade") != 0)
    if hasattr(table, "__arrow_c_stream__"):
        try:
            return pl.DataFrame(table).lazy()
        except ImportError as error:
            raise UserError(
                str(error), hint="pip install pyarrow, or pass a polars table"
            ) from error
    if isinstance(table, tuple | list | np.ndarray | torch.Tensor):
        return _from_arrays(table)
    raise UserError(f"cannot read a table from {type(table).__name__}", hint=f"pass {ACCEPTED}")


def is_sparse(table: Any) -> bool:
    return hasattr(table, "tocoo") and hasattr(table, "tocsr")


def from_sparse(matrix: Any) -> Dataset:
    """A scipy.sparse matrix as training data: row and column numbers are the keys."""
    rows = matrix.tocsr().copy()
    rows.sum_duplicates()
    rows.eliminate_zeros()
    rows.sort_indices()
    grades = torch.from_numpy(np.asarray(rows.data, dtype=np.float32))
    if not bool((grades > 0).all()):  # also False for NaN
        raise UserError(
            "the matrix has negative or missing entries", hint="grades are numbers above 0"
        )
    train = Interactions(
        torch.from_numpy(rows.indptr.astype(np.int64)),
        torch.from_numpy(rows.indices.astype(np.int32)),
        None if bool((grades == 1).all()) else grades,
        rows.shape[1],
    )
    queries, candidates = (Vocabulary.numbered(size) for size in rows.shape)
    content = fingerprint([train], queries.keys, candidates.keys)
    return Dataset("interactions", train, None, None, queries, candidates, fingerprint=content)


def _from_arrays(table: Any) -> pl.LazyFrame:
    """``[n, 2]``, ``[n, 3]`` or two or three arrays of equal length: query, candidate, grade."""
    columns = list(table) if isinstance(table, tuple | list) else list(np.asarray(table).T)
    columns = [np.asarray(column) for column in columns]
    if len(columns) not in (2, 3) or any(c.ndim != 1 or len(c) != len(columns[0]) for c in columns):
        shape = [column.shape for column in columns[:4]]
        raise UserError(
            f"cannot read pairs from arrays of shape {shape}",
            hint="pass two or three arrays of equal length: query, candidate and, if any, grade",
        )
    return pl.LazyFrame(dict(zip(("query", "candidate", "grade"), columns, strict=False)))
