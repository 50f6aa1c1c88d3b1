"""Data sets of rows with ordered grades.

The schema of the columns (which of them are informative, the levels of categories) is learnt from
train only.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankfold.data.build import features, leakage, split
from rankfold.data.build.grades import VALUES_SHOWN, GradedRows
from rankfold.data.read import images
from rankfold.data.read.reading import LINE, Reading
from rankfold.data.read.results import RawRows
from rankfold.errors import UserError
from rankfold.types import (
    SPLITS,
    TEST,
    TRAIN,
    VALIDATION,
    Columns,
    Comm,
    Dataset,
    Graded,
    Vocabulary,
    to_tensors,
)

_MAX_LEVELS = 1000  # of a text column with more levels than half of its rows


# ---------------------------------------------------------------------------------- assembling


def assemble(graded: GradedRows, splits: split.Assignment, reading: Reading) -> Dataset:
    """Learn the schema of the rows' columns, and order the rows by split."""
    rows = graded.rows
    if rows.images is not None:
        images.check_size(rows.images, rows.name)
    reading.progress("reading columns", 0.0)
    columns, left_out, doubtful = _learn(rows, splits == TRAIN)
    if not columns.numbers and not columns.levels and rows.images is None:
        why = "; ".join(f"{entry['column']}: {entry['why']}" for entry in left_out[:VALUES_SHOWN])
        raise UserError(f"{rows.name} has no column of features", hint=why or "it has grades only")
    numbers, categories = features.fill(rows.table, columns, rows.name)
    all_rows = Graded(numbers, categories, rows.images, torch.from_numpy(graded.grades))
    parts: dict[str, Graded] = {
        name: all_rows.select(torch.from_numpy(np.flatnonzero(splits == number)))
        for number, name in enumerate(SPLITS)
    }
    dropped = reading.bad.summary()
    dropped += [{"why": why, "rows": n} for why, n in rows.set_aside.items()]
    n_read = len(rows) + sum(entry["rows"] for entry in dropped)
    history = {"rows": n_read, "dropped": dropped, "left_out": left_out, "doubtful": doubtful}
    history["unknown"] = _unknown(rows, splits, columns, categories)
    too_large = {name: int(features.too_large(rows.table[name]).sum()) for name in columns.numbers}
    history["too_large"] = {name: n for name, n in too_large.items() if n}
    schema = columns if columns.numbers or columns.levels else None
    history |= _leaks(graded, splits, parts, columns, reading)
    return dataset(parts, graded.names, schema, history)


def _leaks(
    graded: GradedRows,
    splits: split.Assignment,
    parts: Mapping[str, Graded],
    columns: Columns,
    reading: Reading,
) -> dict[str, Any]:
    """What may make figures on these rows too high; see ``leakage``."""
    reading.progress("looking for equal rows", 0.0)
    table, masks = graded.rows.table, [pl.Series(splits == number) for number in range(len(SPLITS))]
    places: dict[str, pl.Series] = {
        name: table[LINE].filter(mask) for name, mask in zip(SPLITS, masks, strict=True)
    }
    equal = leakage.equal_rows(parts, places)
    reading.progress("looking for columns that leak", 0.0)
    train = table.filter(masks[TRAIN])
    suspicious = leakage.suspicious_columns(train, parts["train"], columns, len(graded.names))
    findings = {"equal_rows": equal, "suspicious": suspicious}
    return {name: entries for name, entries in findings.items() if entries}


def _unknown(
    rows: RawRows, splits: split.Assignment, columns: Columns, categories: Tensor
) -> dict[str, dict[str, int]]:
    """By split and column, the number of values that train does not have; they become missing."""
    unknown = {}
    for number in (VALIDATION, TEST):
        mask = splits == number
        table, places = rows.table.filter(pl.Series(mask)), categories[torch.from_numpy(mask)]
        unknown[SPLITS[number]] = features.unknown(table, columns, places)
    return {name: counts for name, counts in unknown.items() if counts}


def dataset(
    parts: Mapping[str, Graded],
    names: Sequence[str],
    columns: Columns | None = None,
    history: Mapping[str, Any] | None = None,
) -> Dataset:
    """Prepared data of the three splits; rows are numbered in the order of the splits."""
    train = parts["train"]
    shape = None if train.images is None else list(train.images.shape[1:])
    counts = {
        name: {"rows": len(part), "grades": part.grades.bincount(minlength=len(names)).tolist()}
        for name, part in parts.items()
    }
    present: dict[str, Any] = {n: p if len(p) or n == "train" else None for n, p in parts.items()}
    return Dataset(
        kind="graded",
        **present,
        queries=Vocabulary.numbered(sum(map(len, parts.values()))),
        candidates=Vocabulary.numbered(len(names), names),
        columns=columns,
        summary={
            **counts,
            "grade_names": list(names),
            "numbers": train.numbers.shape[1],
            "categories": train.categories.shape[1],
            "images": shape,
            **(history or {}),
        },
        fingerprint=_fingerprint(present.values(), names, columns),
    )


def train_and_validation(data: Dataset, comm: Comm) -> Graded:
    """The rows of train, then those of validation; each process gets its share.

    ``data`` must hold all rows.
    """
    train, validation = data.graded("train"), data.graded("validation")
    n = len(train)
    start, stop = comm.share(n + len(validation))
    first = train.part(min(start, n), min(stop, n))
    last = validation.part(max(start - n, 0), max(stop - n, 0))
    held = [rows for rows in (first, last) if len(rows)] or [last]
    return held[0].join(*held[1:])


def gather_rows(rows: Graded, comm: Comm) -> Graded:
    """The rows of all processes, on each."""
    if comm.size == 1:
        return rows
    return replace(rows, **{name: comm.gather(t) for name, t in to_tensors(rows).items()})


def _learn(
    rows: RawRows, train: NDArray[np.bool_]
) -> tuple[Columns, list[dict[str, str]], list[dict[str, str]]]:
    """The schema; the dropped columns and the doubtful categories, with reasons.

    All rows decide whether a column holds numbers or text; train decides the rest.
    """
    numbers: list[str] = []
    levels: dict[str, tuple[str, ...]] = {}
    left_out, doubtful = dict(rows.without), dict[str, str]()
    mask = pl.Series(train)
    for name in sorted(set(rows.table.columns) - {LINE}):
        column = rows.table[name]
        values = features.convert(column, words=name in rows.words)
        if values is None:
            left_out[name] = f"it holds {column.dtype}"
            continue
        if values.dtype == pl.String and features.holds_dates(values):
            left_out[name] = f"it holds dates; --time-column {name} splits by them"
            continue
        of_train = values.filter(mask)
        is_text = of_train.dtype == pl.String
        doubt = features.doubt(column, rows.table[LINE]) if is_text else None
        if (why := _uninformative(of_train, column.filter(mask))) is not None:
            left_out[name] = why if doubt is None else f"{why}; {doubt}"
        elif is_text:
            levels[name] = features.levels_of(of_train)
            if doubt is not None:
                doubtful[name] = doubt
        else:
            numbers.append(name)
    without, doubts = (
        [{"column": name, "why": why[name]} for name in sorted(why)] for why in (left_out, doubtful)
    )
    return Columns(tuple(numbers), levels), without, doubts


def _uninformative(column: pl.Series, raw: pl.Series) -> str | None:
    """Why a column of the training rows is uninformative, if so; missing counts as a value."""
    n = column.n_unique()
    if column.count() == 0:
        numbers = features.to_numbers(raw, pl.Float64)
        if numbers is not None and numbers.count():
            return "its numbers are too large: the largest Float32 is 3.4e38"
        return "it has no value in any training row"
    if n == 1:
        return "it has the same value in all training rows"
    if column.dtype == pl.String and n > max(_MAX_LEVELS, len(column) / 2):
        return f"it is text with {n:,} distinct values in {len(column):,} training rows"
    return None


def _fingerprint(
    parts: Iterable[Graded | None], names: Sequence[str], columns: Columns | None
) -> str:
    """A hash of graded rows: their splits, the names of their grades and their columns."""
    digest = hashlib.sha256()
    schema = None if columns is None else columns.to_json()
    digest.update(json.dumps([list(names), schema], sort_keys=True).encode())
    for part in parts:
        for name, tensor in {} if part is None else to_tensors(part).items():
            digest.update(f"{name} {list(tensor.shape)}".encode())
            digest.update(tensor.contiguous().numpy().tobytes())
        digest.update(b"|")
    return digest.hexdigest()
