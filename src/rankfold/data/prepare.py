"""From files and tables to prepared data: read, number, filter, split, summarise."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from rankfold import config, storage
from rankfold.data import folder
from rankfold.data.build import graded, graded_split, side_features, split
from rankfold.data.build.align import keyed_pairs, own_pairs
from rankfold.data.build.dataset import from_sparse, to_dataset
from rankfold.data.build.grades import GradedRows
from rankfold.data.build.pairs import (
    DUPLICATES,
    Pairs,
    at_least,
    compact,
    core,
    frequent,
    number,
    positive,
)
from rankfold.data.build.side_features import SideTables
from rankfold.data.inputs import check_tables, read_inputs, read_tables
from rankfold.data.options import Input, Preparation
from rankfold.data.read import in_memory
from rankfold.data.read.reading import Reading, Taken
from rankfold.data.read.results import Documents
from rankfold.data.sources import SOURCES
from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.errors import UserError
from rankfold.notebook import shown
from rankfold.types import (
    SPLITS,
    TRAIN,
    Comm,
    Dataset,
    Interactions,
    Progress,
    Vocabulary,
)

_FEWEST_KEYS = 10  # of which each chose itself only, for an error
Filter = tuple[str, Callable[[Pairs], Pairs], str]
"""The name, the function, and a hint if it leaves nothing."""


@config.explicit(Preparation)
def prepare(
    *inputs: Input,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: Progress = shown,
    echo: Callable[[Taken], None] = lambda _taken: None,
    **options: Any,
) -> Dataset:
    """Prepare interactions, documents or graded rows for fitting; with ``out``, as a folder.

    Equal seeds give equal splits, whatever the order of the rows.

    Args:
        inputs: paths, globs, or tables in memory.
        out: the folder to write.
        overwrite: also replace a folder of another kind: a model, or data of another kind.
        progress: called with what is done, and the share of it.
        echo: called with the columns that were taken, and three rows, of each table.
        options: see below.
    """
    chosen = config.build(Preparation, options)
    check_tables(chosen)
    if out is not None:
        check_replaceable(Path(out), overwrite=overwrite, graded=chosen.is_graded)
    with storage.scratch() as scratch:
        reading = Reading(scratch, progress=progress, dialect=chosen.dialect)
        try:
            rows = read_inputs(inputs, chosen, reading)
        finally:
            for taken in reading.taken:
                echo(taken)
        tables = read_tables(chosen, reading, rows)
        if isinstance(rows, GradedRows):
            progress("splitting", 0.0)
            splits = graded_split.assign(rows, chosen.split, chosen.validation_share, chosen.seed)
            data = graded.assemble(rows, splits, reading)
            if chosen.query_column is not None:
                data = replace(data, summary={**data.summary, "query_column": chosen.query_column})
        else:
            data = _assemble(rows, tables, chosen, reading)
    if out is None:
        return data
    progress("writing", 0.0)
    folder.save(data, Path(out), chosen.shards, overwrite=overwrite)
    return folder.load(out)


def check_replaceable(path: Path, *, overwrite: bool, graded: bool) -> None:
    """A UserError if the data must not replace what is at ``path``."""
    storage.check_writable(path, "data", overwrite=overwrite)
    if overwrite or not (path / storage.MANIFEST).exists():
        return
    present = storage.read(path).manifest["data_kind"]
    if (present == "graded") is not graded:
        kinds = {True: "graded rows", False: "pairs"}
        raise storage.OtherKindError(
            f"{path} holds {kinds[not graded]}; {kinds[graded]} would replace them",
            hint="choose another --out, or use --overwrite",
        )


def as_data(data: Any, comm: Comm = SINGLE_PROCESS) -> Dataset:
    """Prepared data, or its folder, or any table or matrix as pairs to train on.

    Each of several processes gets the rows of its own queries. All of them need the same tables.
    """
    if isinstance(data, str | Path):
        return folder.load(data, comm)
    if not isinstance(data, Dataset):
        is_sparse = in_memory.is_sparse(data)
        data = from_sparse(data) if is_sparse else prepare(data, split=(1.0, 0.0, 0.0))
    return folder.part(data, comm)


# ---------------------------------------------------------------------------------- pairs


def _assemble(
    rows: pl.LazyFrame | Documents, tables: SideTables, options: Preparation, reading: Reading
) -> Dataset:
    """Number, filter and split the rows; then add features and texts, which change no split."""
    by_queries = bool(tables.texts)
    rule = split.default_rule(by_queries=by_queries) if options.split is None else options.split
    splitter = split.parse(rule, options.validation_share)  # an error comes before long work
    reading.progress("numbering keys", 0.0)
    frame = rows.pairs if isinstance(rows, Documents) else rows
    if not options.keeps_splits:
        frame = frame.drop("split", strict=False)
    pairs, queries, candidates = number(frame)
    dropped = reading.bad.summary()
    n_read = len(pairs) + sum(entry["rows"] for entry in dropped)
    if len(pairs) == 0:
        problem = "there are no usable rows" if n_read else "the input has no rows"
        raise UserError(problem, hint=reading.bad.hint())
    _check_sides(pairs, queries, candidates)
    reading.progress("filtering", 0.0)
    given = rows.excluded if isinstance(rows, Documents) else None
    for name, keep, hint in _filters(pairs, options, queries, candidates, given):
        before, pairs = len(pairs), keep(pairs)
        if len(pairs) == 0:
            raise UserError(f"the filter '{name}' removed all {before:,} pairs", hint=hint)
        if len(pairs) < before:
            dropped.append({"why": name, "rows": before - len(pairs)})
    pairs, queries, candidates = compact(pairs, queries, candidates)
    reading.progress("splitting", 0.0)
    by_queries |= options.fold_in is not None
    pairs = _split(pairs, options, splitter, by_queries=by_queries)
    if options.fold_in is not None:
        before = len(pairs)
        pairs = split.fold_in(pairs, options.fold_in, np.random.default_rng([options.seed, 1]))
        if len(pairs) < before:
            dropped.append({"why": "held out, candidate not in train", "rows": before - len(pairs)})
        pairs, queries, candidates = compact(pairs, queries, candidates)
    pairs, keys = side_features.join(pairs, {"query": queries, "candidate": candidates}, tables)
    kind, size = options.tokens, options.vocabulary
    sides = side_features.describe(pairs, keys, tables, kind, size, reading.progress)
    source: dict[str, Any] = {} if options.source is None else {"source": options.source}
    if reading.taken:
        source["columns"] = reading.taken[0].columns
    history = {**source, "rows": n_read, "dropped": dropped, **sides.summary}
    data = to_dataset(pairs, keys, sides, history)
    both = data.queries, data.candidates
    excluded = None if given is None else keyed_pairs(given, *both)
    if _excludes_self(options):
        excluded = own_pairs(*both) if excluded is None else excluded.union(own_pairs(*both))
    return replace(data, excluded=excluded)


def _check_sides(pairs: Pairs, queries: pl.Series, candidates: pl.Series) -> None:
    """A UserError if each query chose itself only: one column was taken for both sides."""
    if len(queries) == len(candidates) >= _FEWEST_KEYS and queries.dtype == candidates.dtype:
        own = Vocabulary.of(candidates).find(queries).numpy()
        if bool((own[pairs.queries] == pairs.candidates).all()):
            raise UserError(
                "query and candidate are equal in every row",
                hint="name other columns: --query-column NAME and --candidate-column NAME",
            )


def _excludes_self(options: Preparation) -> bool:
    return options.exclude_self or (options.source is not None and SOURCES[options.source].links)


def _split(
    pairs: Pairs, options: Preparation, splitter: split.Splitter, *, by_queries: bool
) -> Pairs:
    """The pairs with their splits, given or drawn by the seed."""
    rng = np.random.default_rng(options.seed)
    share = options.validation_share if options.validation is None else 0.0
    carve = split.by_query if by_queries else split.by_ratio
    splits = split.assign(pairs, splitter, share, rng, carve)
    if not (splits == TRAIN).any():
        raise UserError(
            f"none of the {len(pairs):,} pairs is in train", hint="is it the right train file?"
        )
    return replace(pairs, splits=splits)


# ---------------------------------------------------------------------------------- filters


def _filters(
    pairs: Pairs,
    options: Preparation,
    queries: pl.Series,
    candidates: pl.Series,
    excluded: pl.DataFrame | None,
) -> list[Filter]:
    """The filters, in order."""
    low = options.min_grade
    filters: list[Filter] = [("repeated pair", DUPLICATES[options.duplicates], "")]
    if low is not None:
        if pairs.grades is None:
            hint = "name their column: --grade-column NAME"
            raise UserError("a minimum grade needs grades", hint=hint)
        hint = f"lower --min-grade; the highest grade is {pairs.grades.max():g}"
        filters.append((f"grade below {low:g}", lambda p: at_least(p, low), hint))
    filters.append(("grade of 0 or less", positive, "pairs with a grade above 0 are positive"))
    if _excludes_self(options):
        own, hint = Vocabulary.of(candidates).find(queries).numpy(), "leave --exclude-self out"
        filters.append(("own key", lambda p: p.take(p.candidates != own[p.queries]), hint))
    if excluded is not None:
        filters += _without(
            keyed_pairs(excluded, *map(Vocabulary.of, (queries, candidates))), pairs
        )
    for side, of in (("candidate", "candidates"), ("query", "queries")):
        if (n := getattr(options, f"min_{side}_pairs")) > 1:
            name, hint = f"{side} with fewer than {n} pairs", f"lower --min-{side}-pairs"
            filters.append((name, partial(frequent, n=n, of=of), hint))
    if options.kcore > 1:
        name = f"{options.kcore}-core"
        filters.append((name, lambda p: core(p, options.kcore), "lower --kcore"))
    return filters


def _without(excluded: Interactions, pairs: Pairs) -> list[Filter]:
    """Excluded pairs are not positives either; one filter for each given split."""
    hint = "are the filter files from this data set?"

    def keep(split_number: int | None, p: Pairs) -> Pairs:
        codes = p.queries * excluded.n_candidates + p.candidates
        hidden = np.isin(codes, excluded.codes().numpy())
        return p.take(~hidden if split_number is None else ~(hidden & (p.splits == split_number)))

    names: dict[str, int | None] = {"excluded pair": None}
    if pairs.splits is not None:
        names = {f"excluded pair of {name}": number for number, name in enumerate(SPLITS)}
    return [(name, partial(keep, number), hint) for name, number in names.items()]
