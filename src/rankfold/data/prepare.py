"""From a table to prepared data: read, number, filter, split, summarise."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from rankfold import config, store
from rankfold.data import features, folder, memory, split
from rankfold.data.adjacency import looks_like_adjacency, read_adjacency
from rankfold.data.matching import own_pairs
from rankfold.data.pairs import (
    DUPLICATES,
    Pairs,
    at_least,
    check_not_empty,
    compact,
    core,
    move,
    number,
    own_rows,
    positive,
)
from rankfold.data.reading import BadRows, Reading, base_suffix, expand, lines, silent
from rankfold.data.sources import SOURCES
from rankfold.data.tables import NONE, Columns, read_frame, read_table, stack
from rankfold.errors import UserError
from rankfold.types import Dataset, Features, Interactions, Progress, Vocabulary, from_pairs

Input = Any
"""A path or glob, or a table in memory; ``memory.ACCEPTED`` lists them."""
Keys = Mapping[str, pl.Series]
Tables = Mapping[str, features.Table]
Known = Mapping[str, Features]
"""By side, ``query`` or ``candidate``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """The options of ``prepare``. Columns are guessed where None; ``"none"`` is to do without."""

    query: str | None = None
    candidate: str | None = None
    grade: str | None = None
    time: str | None = None
    header: bool = True  # False: the columns of a text table are column_0, column_1, ...
    source: str | None = None  # a name in SOURCES
    format: str | None = None  # table or adjacency; told from the file where None
    train: Input = None  # given splits instead of inputs
    validation: Input = None
    test: Input = None
    query_features: Input = None  # one table; its keys: the query column's name, else the first
    candidate_features: Input = None
    validation_share: float = 0.1  # carved from train where splits are given without validation
    duplicates: str = "highest"  # which of equal pairs stays: highest (grade) or last
    min_grade: float | None = None
    exclude_self: bool = False  # never return what has the query's own key (pages, packages)
    kcore: int = 0
    split: str | Sequence[float] = (0.8, 0.1, 0.1)
    seed: int = 0
    strict: bool = False  # refuse bad rows instead of leaving them out


def prepare(
    *inputs: Input, out: str | Path | None = None, progress: Progress = silent, **options: Any
) -> Dataset:
    """Prepare a table of interactions for fitting; with ``out``, as a folder on disk.

    ``options`` are the fields of ``Preparation``. The same seed gives the same splits whatever the
    order of the rows.
    """
    config.check_names(Preparation, options)
    plan = _checked(Preparation(**options))
    if out is not None:
        store.check_writable(Path(out), "data")
    with tempfile.TemporaryDirectory(prefix="rankfold-") as scratch:
        reading = Reading(Path(scratch), progress=progress)
        rows = _read(inputs, plan, reading)
        tables = _read_features(plan, reading, graded=isinstance(rows, Dataset))
        data = rows if isinstance(rows, Dataset) else _assemble(rows, tables, plan, reading)
    if out is None:
        return data
    progress("writing", 0.0)
    folder.save(data, Path(out))
    return folder.load(out)


def as_data(data: Any) -> Dataset:
    """Prepared data or its folder as it is; any other table or matrix as pairs to train on."""
    if isinstance(data, Dataset):
        return data
    if isinstance(data, str | Path):
        return folder.load(data)
    if memory.is_sparse(data):
        return memory.from_sparse(data)
    return prepare(data, split=(1.0, 0.0, 0.0))


def _checked(plan: Preparation) -> Preparation:
    for name, value, known in (
        ("source", plan.source, SOURCES),
        ("duplicates", plan.duplicates, DUPLICATES),
        ("format", plan.format, ("table", "adjacency")),
    ):
        if value is not None and value not in known:
            raise UserError(f"there is no {name} {value!r}", hint=f"known: {', '.join(known)}")
    if not 0 <= plan.validation_share < 1:
        raise UserError(
            f"the validation share is {plan.validation_share:g}", hint="it is at least 0, below 1"
        )
    for name, number_ in (("seed", plan.seed), ("kcore", plan.kcore)):
        if not isinstance(number_, int) or number_ < 0:
            raise UserError(f"{name} is {number_}", hint="it is a whole number, 0 or more")
    if plan.min_grade is not None and not math.isfinite(plan.min_grade):
        raise UserError(f"the minimum grade is {plan.min_grade}", hint="it is a number")
    for table in (plan.query_features, plan.candidate_features):
        if table is not None:
            features.check_source(table)
    return plan


# ---------------------------------------------------------------------------------- reading


def _read(inputs: Sequence[Input], plan: Preparation, reading: Reading) -> pl.LazyFrame | Dataset:
    """The usable rows of the inputs, with a column ``split`` where the splits are given."""
    given = {"train": plan.train, "validation": plan.validation, "test": plan.test}
    if any(value is not None for value in given.values()):
        if inputs or plan.train is None:
            raise UserError(
                "given splits need a train file and no other input",
                hint="use --train F, with --validation F and --test F where there are such",
            )
        rows = stack(
            [
                (name, _read_inputs([value], plan, reading).with_columns(split=pl.lit(i, pl.UInt8)))
                for i, (name, value) in enumerate(given.items())
                if value is not None
            ]
        )
    elif plan.source is not None:
        read = _read_source(inputs, plan, reading)
        if isinstance(read, Dataset):
            return read
        rows = read
    else:
        rows = _read_inputs(inputs, plan, reading)
    _check_strict(plan, reading.bad)
    return rows


def _check_strict(plan: Preparation, bad: BadRows) -> None:
    if plan.strict and bad.counts:
        raise UserError(
            f"found {'; '.join(bad.describe())}",
            hint="correct them, or leave --strict out to go on without them",
        )


def _read_source(
    inputs: Sequence[Input], plan: Preparation, reading: Reading
) -> pl.LazyFrame | Dataset:
    assert plan.source is not None
    source = SOURCES[plan.source]
    if bool(inputs) != bool(source.inputs):
        wanted = f"takes {source.inputs}" if source.inputs else "is bundled and takes no input"
        raise UserError(f"the source {plan.source} {wanted}", hint=source.summary)
    reading.progress(f"reading {plan.source}", 0.0)
    rows = source.read(expand(inputs), reading)
    if isinstance(rows, Dataset):
        return rows
    names = Columns("query", "candidate", None, None if _wants_time(plan) else NONE)
    return read_frame(rows, names, plan.source, reading)


def _read_inputs(inputs: Sequence[Input], plan: Preparation, reading: Reading) -> pl.LazyFrame:
    columns = Columns(
        plan.query, plan.candidate, plan.grade, plan.time or (None if _wants_time(plan) else NONE)
    )
    items = [item for value in inputs for item in _items(value)]
    if not items:
        raise UserError("there is nothing to read", hint="name a file, or a --source")
    tables = []
    for number_, item in enumerate(items):
        name = item.name if isinstance(item, Path) else "the table"
        reading.progress(f"reading {name}", number_ / len(items))
        if isinstance(item, Path):
            tables.append((name, _read_file(item, columns, plan, reading)))
        else:
            tables.append((name, read_frame(memory.to_frame(item), columns, name, reading)))
    return stack(tables)


def _items(value: Input) -> Sequence[Input]:
    """The files that a path, a glob or a list of them names; a table in memory is one item."""
    if isinstance(value, str | Path):
        return expand([value])
    if isinstance(value, list) and all(isinstance(path, str | Path) for path in value):
        return expand(value)
    return [value]


def _read_file(path: Path, columns: Columns, plan: Preparation, reading: Reading) -> pl.LazyFrame:
    if path.is_dir():
        raise UserError(f"{path} is a folder", hint=f"name its files, say '{path}/*.parquet'")
    if plan.format == "adjacency" or (plan.format is None and _is_adjacency(path)):
        names = Columns("query", "candidate", NONE, NONE)
        return read_frame(read_adjacency(path), names, path.name, reading)
    return read_table(path, columns, reading, header=plan.header)


def _wants_time(plan: Preparation) -> bool:
    return split.parse(plan.split, 0.0).needs_time or plan.duplicates == "last"


def _is_adjacency(path: Path) -> bool:
    if base_suffix(path) not in (".txt", ""):
        return False
    return looks_like_adjacency([text for _, text in islice(lines(path), 10)])


# ---------------------------------------------------------------------------------- assembling


def _assemble(rows: pl.LazyFrame, tables: Tables, plan: Preparation, reading: Reading) -> Dataset:
    """Number, filter and split the rows; then come the features, which change no split."""
    split.parse(plan.split, plan.validation_share)  # a bad rule is refused before the long work
    reading.progress("numbering keys", 0.0)
    pairs, queries, candidates = number(rows)
    dropped = _dropped(reading.bad)
    n_read = len(pairs) + sum(entry["rows"] for entry in dropped)
    if len(pairs) == 0:
        raise UserError(
            "there are no usable rows" if n_read else "the input has no rows",
            hint="; ".join(reading.bad.describe()) or "is it the right file?",
        )
    reading.progress("filtering", 0.0)
    for name, keep, hint in _filters(pairs, plan, queries, candidates):
        before, pairs = len(pairs), keep(pairs)
        check_not_empty(pairs, before, f"the filter '{name}'", hint)
        if len(pairs) < before:
            dropped.append({"why": name, "rows": before - len(pairs)})
    pairs, queries, candidates = compact(pairs, queries, candidates)
    reading.progress("splitting", 0.0)
    pairs = _split(pairs, plan)
    sides = {"query": queries, "candidate": candidates}
    pairs, keys, known, summary = _joined(pairs, sides, tables)
    data = _dataset(pairs, keys, known, {"rows": n_read, "dropped": dropped, **summary})
    excluded = own_pairs(data.queries, data.candidates) if _excludes_self(plan) else None
    return replace(data, excluded=excluded)


def _dropped(bad: BadRows) -> list[dict[str, Any]]:
    return [
        {"why": reason, "rows": n, "first": bad.places[reason]} for reason, n in bad.counts.items()
    ]


def _split(pairs: Pairs, plan: Preparation) -> Pairs:
    """The pairs with their splits: as given, or drawn by the seed."""
    rng = np.random.default_rng(plan.seed)
    if pairs.splits is None:
        splits = split.parse(plan.split, plan.validation_share).assign(pairs, rng)
    elif plan.validation is None and plan.validation_share:
        splits = split.carve_validation(pairs, plan.validation_share, rng)
    else:
        splits = pairs.splits
    if not (splits == split.TRAIN).any():
        raise UserError(
            f"none of the {len(pairs):,} pairs is for training",
            hint="is the train file the right one?",
        )
    return replace(pairs, splits=splits)


def _excludes_self(plan: Preparation) -> bool:
    return plan.exclude_self or (plan.source is not None and SOURCES[plan.source].links)


def _filters(
    pairs: Pairs, plan: Preparation, queries: pl.Series, candidates: pl.Series
) -> list[tuple[str, Callable[[Pairs], Pairs], str]]:
    """The filters in their order: name, function, and what to do if one leaves nothing."""
    low = plan.min_grade
    if low is not None and pairs.grades is None:
        raise UserError(
            "a minimum grade needs grades", hint="name their column: --grade-column NAME"
        )
    filters = [("repeated pair", DUPLICATES[plan.duplicates], "")]
    if low is not None:
        hint = f"lower --min-grade; the highest grade is {pairs.grades.max():g}"  # type: ignore[union-attr]
        filters.append((f"grade below {low:g}", lambda p: at_least(p, low), hint))
    filters.append(
        ("grade of 0 or less", positive, "a grade above 0 means that a pair is positive")
    )
    if _excludes_self(plan):
        own, hint = own_rows(queries, candidates), "leave --exclude-self out"
        filters.append(("own key", lambda p: p.take(p.candidates != own[p.queries]), hint))
    if plan.kcore > 1:
        filters.append((f"{plan.kcore}-core", lambda p: core(p, plan.kcore), "lower --kcore"))
    return filters


def _dataset(pairs: Pairs, keys: Keys, known: Known, history: dict[str, Any]) -> Dataset:
    queries, candidates = keys["query"], keys["candidate"]
    shape = (len(queries), len(candidates))
    grades = pairs.grades
    if grades is not None and (grades == 1).all():
        grades = None
    parts: dict[str, Interactions | None] = {}
    for number_, name in enumerate(("train", "validation", "test")):
        mine = pairs.splits == number_
        parts[name] = from_pairs(
            torch.from_numpy(pairs.queries[mine]),
            torch.from_numpy(pairs.candidates[mine]),
            None if grades is None else torch.from_numpy(grades[mine]),
            shape,
        )
        if name != "train" and not np.any(mine):
            parts[name] = None
    train, validation, test = parts.values()
    assert train is not None
    return Dataset(
        kind="interactions",
        train=train,
        validation=validation,
        test=test,
        queries=Vocabulary(shape[0], lambda: queries),
        candidates=Vocabulary(shape[1], lambda: candidates),
        query_features=known.get("query"),
        candidate_features=known.get("candidate"),
        summary={**_counts(parts, shape), **_grade_summary(grades), **history},
        fingerprint=folder.fingerprint(parts.values(), queries, candidates, known),
    )


def _counts(parts: dict[str, Interactions | None], shape: tuple[int, int]) -> dict[str, Any]:
    sizes = {name: 0 if part is None else part.n_pairs for name, part in parts.items()}
    total = sum(sizes.values())
    per_query = sum(part.counts() for part in parts.values() if part is not None)
    per_candidate = sum(part.candidate_counts() for part in parts.values() if part is not None)
    assert isinstance(per_query, torch.Tensor)
    assert isinstance(per_candidate, torch.Tensor)
    return {
        "queries": shape[0],
        "candidates": shape[1],
        "pairs": total,
        **sizes,
        "density": total / (shape[0] * shape[1]),
        "pairs_per_query": {"median": int(per_query.median()), "max": int(per_query.max())},
        "pairs_per_candidate": {
            "median": int(per_candidate.median()),
            "max": int(per_candidate.max()),
        },
    }


def _grade_summary(grades: np.ndarray[Any, Any] | None) -> dict[str, Any]:
    if grades is None:
        return {"grades": None}
    values, counts = np.unique(grades, return_counts=True)
    summary: dict[str, Any] = {
        "lowest": float(values[0]),
        "highest": float(values[-1]),
        "mean": float(grades.mean(dtype=np.float64)),
    }
    if len(values) <= 20:
        summary["pairs"] = {f"{value:g}": int(n) for value, n in zip(values, counts, strict=True)}
    return {"grades": summary}


# ---------------------------------------------------------------------------------- features


def _read_features(plan: Preparation, reading: Reading, *, graded: bool) -> Tables:
    """The tables of features; their keys stand in the column that the pairs have them in."""
    given = {"query": plan.query_features, "candidate": plan.candidate_features}
    tables: dict[str, features.Table] = {}
    for side, table in given.items():
        if table is None:
            continue
        if graded:
            raise UserError(
                f"graded rows take no table of {side} features",
                hint=f"leave --{side}-features out: the rows have features of their own",
            )
        reading.progress(f"reading {side} features", 0.0)
        tables[side] = features.open_table(table, usual=reading.columns.get(side))
        _check_strict(plan, tables[side].bad)
    return tables


def _joined(pairs: Pairs, keys: Keys, tables: Tables) -> tuple[Pairs, Keys, Known, dict[str, Any]]:
    """Every key of a table of features gets a row, with pairs or without; and what is known of it.

    The last is a summary of that.
    """
    if not tables:
        return pairs, keys, {}, {}
    joined = {side: features.joined(mine, tables.get(side)) for side, mine in keys.items()}
    rows = {side: joined[side].find(mine).numpy() for side, mine in keys.items()}
    pairs = move(pairs, rows["query"], rows["candidate"], len(joined["candidate"]))
    known = {side: features.align(table, joined[side]) for side, table in tables.items()}
    summary = {
        side: {
            "rows": len(table.keys),
            "numbers": len(known[side].columns.numbers),
            "categories": len(known[side].columns.levels),
            "left_out": features.left_out(table, known[side]),
            "without_pairs": len(joined[side]) - len(keys[side]),
            "without_features": len(joined[side]) - len(table.keys),
            "dropped": _dropped(table.bad),
        }
        for side, table in tables.items()
    }
    return pairs, {side: all_.keys for side, all_ in joined.items()}, known, {"features": summary}
