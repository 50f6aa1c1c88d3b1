"""Tables in memory: polars, pandas, Arrow, scipy.sparse, arrays."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import polars as pl
import torch

from rankfold.data.read.reading import Reading, spool_frames
from rankfold.errors import UserError

ACCEPTED = (
    "a path, a polars, pandas or Arrow table, a scipy.sparse matrix or an array of 2 or 3 columns"
)


def to_frame(table: Any, reading: Reading | None = None) -> pl.LazyFrame:
    """Any accepted table as a lazy frame.

    With ``reading``, a stream that is not a table in memory (a DuckDB relation, a Spark frame)
    becomes temporary files, batch by batch. That needs pyarrow.
    """
    if isinstance(table, pl.LazyFrame):
        return table
    if isinstance(table, pl.DataFrame):
        return table.lazy()
    if is_sparse(table):
        entries = sum_duplicates(table).tocoo()
        columns = {"query": entries.row, "candidate": entries.col, "grade": entries.data}
        return pl.LazyFrame(columns)
    if hasattr(table, "__arrow_c_stream__"):
        with _convertible(table):
            if reading is not None and not hasattr(table, "__len__") and find_spec("pyarrow"):
                return _spooled(table, reading)
            if type(table).__module__.startswith("pandas") and not find_spec("pyarrow"):
                return pl.LazyFrame({str(name): _column(table[name]) for name in table})
            return pl.DataFrame(table).lazy()
    if isinstance(table, tuple | list | np.ndarray | torch.Tensor):
        return _from_arrays(table)
    raise UserError(f"cannot read a table from {type(table).__name__}", hint=f"pass {ACCEPTED}")


def _column(values: Any) -> pl.Series:
    """A column of pandas for polars, which needs pyarrow to read others than plain numbers."""
    if isinstance(values.dtype, np.dtype) and values.dtype.kind in "biufM":
        return pl.Series(values.to_numpy(), nan_to_null=True)
    return pl.Series([None if gap else one for one, gap in zip(values, values.isna(), strict=True)])


def _spooled(table: Any, reading: Reading) -> pl.LazyFrame:
    """An Arrow stream as temporary files."""
    pyarrow: Any = import_module("pyarrow")
    stream = pyarrow.RecordBatchReader.from_stream(table)
    empty = pl.DataFrame(stream.schema.empty_table())
    frames = (pl.DataFrame(pyarrow.Table.from_batches([batch])) for batch in stream)
    return spool_frames(frames, empty.schema, reading)


def is_sparse(table: Any) -> bool:
    return hasattr(table, "tocoo") and hasattr(table, "tocsr")


def sum_duplicates(matrix: Any) -> Any:
    """A sorted copy in CSR: duplicate entries are added, zeros removed."""
    rows = matrix.tocsr().copy()
    rows.sum_duplicates()
    rows.eliminate_zeros()
    rows.sort_indices()
    return rows


def _from_arrays(table: Any) -> pl.LazyFrame:
    """``[n, 2]``, ``[n, 3]``, or two or three arrays of equal length: query, candidate, grade."""
    listed = isinstance(table, tuple | list)
    if listed and any(isinstance(column, tuple) for column in table):
        raise UserError(
            "a list of tuples is ambiguous: rows or columns?",
            hint="pass an array of 2 or 3 columns",
        )
    columns = list(table) if listed else list(_array(table).T)
    columns = [_array(column) for column in columns]
    if len(columns) not in (2, 3) or any(c.ndim != 1 or len(c) != len(columns[0]) for c in columns):
        shape = [column.shape for column in columns[:4]]
        raise UserError(
            f"cannot read pairs from arrays of shape {shape}",
            hint="pass two or three arrays of equal length: query, candidate and optionally grade",
        )
    plain = (column.tolist() if column.dtype == object else column for column in columns)
    named = dict(zip(("query", "candidate", "grade"), plain, strict=False))
    with _convertible(table):
        return pl.LazyFrame(named)


def _array(values: Any) -> np.ndarray[Any, Any]:
    with _convertible(values):
        return np.asarray(values.detach() if isinstance(values, torch.Tensor) else values)


@contextmanager
def _convertible(table: Any) -> Iterator[None]:
    """Errors of a conversion become UserErrors."""
    try:
        yield
    except ImportError as error:
        raise UserError(str(error), hint="pip install pyarrow, or pass a polars table") from error
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        name = type(table).__name__
        raise UserError(f"cannot read the {name}: {error}", hint=f"pass {ACCEPTED}") from error
