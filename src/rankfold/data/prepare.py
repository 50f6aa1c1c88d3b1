"""From files and tables to prepared data: read, number, filter, split, summarise."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from rankfold import config, storage
from rankfold.data import folder
from rankfold.data.assemble import assemble
from rankfold.data.build import graded
from rankfold.data.build.dataset import from_sparse
from rankfold.data.build.grades import GradedRows
from rankfold.data.inputs import check_tables, read_inputs, read_tables
from rankfold.data.options import Input, Preparation
from rankfold.data.read import memory
from rankfold.data.read.reading import Reading
from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.types import Comm, Dataset, Progress, silent


def prepare(
    *inputs: Input, out: str | Path | None = None, progress: Progress = silent, **options: Any
) -> Dataset:
    """Prepare interactions, documents or graded rows for fitting; with ``out``, as a folder.

    ``options`` are the fields of ``Preparation``. Equal seeds give equal splits, whatever the order
    of the rows.
    """
    chosen = config.build(Preparation, options)
    check_tables(chosen)
    if out is not None:
        storage.check_writable(Path(out), "data")
    with tempfile.TemporaryDirectory(prefix="rankfold-") as scratch:
        data = _build(inputs, chosen, Reading(Path(scratch), progress=progress))
    if out is None:
        return data
    progress("writing", 0.0)
    folder.save(data, Path(out), chosen.shards)
    return folder.load(out)


def _build(inputs: tuple[Input, ...], options: Preparation, reading: Reading) -> Dataset:
    rows = read_inputs(inputs, options, reading)
    tables = read_tables(options, reading, rows)
    if isinstance(rows, Dataset):
        return rows
    if isinstance(rows, GradedRows):
        split = graded.SplitOptions(options.split, options.validation_share, options.seed)
        return graded.assemble(rows, split, reading)
    return assemble(rows, tables, options, reading)


def as_data(data: Any, comm: Comm = SINGLE_PROCESS) -> Dataset:
    """Prepared data, or its folder, or any table or matrix as pairs to train on.

    Each of several processes gets the rows of its own queries. All of them need the same tables.
    """
    if isinstance(data, str | Path):
        return folder.load(data, comm)
    if not isinstance(data, Dataset):
        is_sparse = memory.is_sparse(data)
        data = from_sparse(data) if is_sparse else prepare(data, split=(1.0, 0.0, 0.0))
    return folder.part(data, comm)
