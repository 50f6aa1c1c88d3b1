"""Pairs as numbers: from keys to rows, then the filters, on plain arrays.

The keys alone define the rows of a vocabulary and the pairs are kept sorted, so no result depends
on the order of the input or on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from rankfold.data.read.values import canonical, check_count


@dataclass(frozen=True, slots=True)
class Pairs:
    """One row per pair, sorted by query, then candidate."""

    queries: NDArray[np.int64]
    candidates: NDArray[np.int64]
    grades: NDArray[np.float32] | None
    times: NDArray[np.float64] | None
    order: NDArray[np.int64]  # place in the input
    splits: NDArray[np.uint8] | None  # as numbers; None: the input has no splits

    def __len__(self) -> int:
        return len(self.queries)

    def take(self, places: NDArray[np.bool_] | NDArray[np.int64]) -> Pairs:
        columns: Any = (getattr(self, field.name) for field in fields(self))
        taken: Any = (None if column is None else column[places] for column in columns)
        return Pairs(*taken)


def number(frame: pl.LazyFrame) -> tuple[Pairs, pl.Series, pl.Series]:
    """The pairs with rows in place of keys, and the ascending keys of queries and candidates.

    Two streaming passes collect the distinct keys, a third looks each row's keys up: the keys of
    all rows are never in memory at once.
    """
    queries, candidates = _vocabulary(frame, "query"), _vocabulary(frame, "candidate")
    present = frame.collect_schema().names()
    columns = [name for name in ("grade", "time", "split") if name in present]
    try:
        rows = (
            frame.with_row_index("order")
            .join(queries.lazy(), on="query", how="left")
            .join(candidates.lazy(), on="candidate", how="left")
            .select("query_row", "candidate_row", "order", *columns)
            .collect(engine="streaming")
        )
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        check_count(frame, "the input")
        raise
    pairs = Pairs(
        queries=rows["query_row"].to_numpy().astype(np.int64),
        candidates=rows["candidate_row"].to_numpy().astype(np.int64),
        grades=rows["grade"].to_numpy() if "grade" in columns else None,
        times=rows["time"].to_numpy() if "time" in columns else None,
        order=rows["order"].to_numpy().astype(np.int64),
        splits=rows["split"].to_numpy() if "split" in columns else None,
    )
    del rows
    return _sorted(pairs, len(candidates)), queries["key"], candidates["key"]


def _sorted(pairs: Pairs, n_candidates: int) -> Pairs:
    """The pairs by query, then candidate; equal pairs keep their order."""
    key = torch.from_numpy(pairs.queries * max(n_candidates, 1) + pairs.candidates)
    places = torch.sort(key, stable=True).indices.numpy()  # several times as fast as numpy's
    return pairs.take(places)


def _vocabulary(frame: pl.LazyFrame, role: str) -> pl.DataFrame:
    """The distinct keys of a column: as read, as stored, and their rows."""
    raw = frame.select(pl.col(role).unique()).collect(engine="streaming").to_series()
    table = pl.DataFrame({role: raw, "key": canonical(raw)}).sort("key")
    return table.with_row_index(f"{role}_row")


# ---------------------------------------------------------------------------------- filters


def highest(pairs: Pairs) -> Pairs:
    """Of equal pairs the highest grade, then the latest, then the last in the input."""
    return _one_of_each(pairs, [pairs.order, pairs.times, pairs.grades])


def last(pairs: Pairs) -> Pairs:
    """Of equal pairs the latest, then the highest; without times, the last in the input."""
    if pairs.times is None:
        return _one_of_each(pairs, [pairs.order])
    return _one_of_each(pairs, [pairs.order, pairs.grades, pairs.times])


DUPLICATES: dict[str, Callable[[Pairs], Pairs]] = {"highest": highest, "last": last}


def _one_of_each(pairs: Pairs, preferences: list[NDArray[np.generic] | None]) -> Pairs:
    """Of equal pairs the greatest by the last preference, then by the one before it.

    A pair in several given splits belongs to the earliest: no pair to predict is in train.
    """
    same = (pairs.queries[1:] == pairs.queries[:-1]) & (
        pairs.candidates[1:] == pairs.candidates[:-1]
    )
    if not same.any():
        return pairs
    repeated = np.zeros(len(pairs), dtype=bool)
    repeated[1:] |= same
    repeated[:-1] |= same
    places = np.flatnonzero(repeated)
    if pairs.splits is not None:
        preferences = [*preferences, 2 - pairs.splits]
    keys = [key[places] for key in preferences if key is not None]
    ordered = places[np.lexsort([*keys, pairs.candidates[places], pairs.queries[places]])]
    query, candidate = pairs.queries[ordered], pairs.candidates[ordered]
    best = np.ones(len(ordered), dtype=bool)
    best[:-1] = (query[1:] != query[:-1]) | (candidate[1:] != candidate[:-1])
    keep = ~repeated
    keep[ordered[best]] = True
    return pairs.take(keep)


def at_least(pairs: Pairs, grade: float) -> Pairs:
    """The pairs with a grade of at least ``grade``."""
    return pairs if pairs.grades is None else pairs.take(pairs.grades >= grade)


def positive(pairs: Pairs) -> Pairs:
    """The pairs with a grade above 0."""
    return pairs if pairs.grades is None else pairs.take(pairs.grades > 0)


def frequent(pairs: Pairs, n: int, of: str) -> Pairs:
    """The pairs of queries or candidates with at least n pairs."""
    rows = getattr(pairs, of)
    return pairs.take(np.bincount(rows)[rows] >= n)


def core(pairs: Pairs, k: int) -> Pairs:
    """The k-core: the largest set in which every query and every candidate has at least k pairs.

    Queries and candidates with fewer pairs are removed until none is left.
    """
    while len(pairs):
        enough = np.bincount(pairs.queries)[pairs.queries] >= k
        enough &= np.bincount(pairs.candidates)[pairs.candidates] >= k
        if enough.all():
            break
        pairs = pairs.take(enough)
    return pairs


def compact(
    pairs: Pairs, queries: pl.Series, candidates: pl.Series
) -> tuple[Pairs, pl.Series, pl.Series]:
    """Renumber the remaining queries and candidates without gaps, in the same order."""
    used = {}
    for side, keys in (("queries", queries), ("candidates", candidates)):
        used[side] = np.bincount(getattr(pairs, side), minlength=len(keys)) > 0
        pairs = replace(pairs, **{side: (np.cumsum(used[side]) - 1)[getattr(pairs, side)]})
    masks = {side: pl.Series(one) for side, one in used.items()}
    return pairs, queries.filter(masks["queries"]), candidates.filter(masks["candidates"])


def renumber(
    pairs: Pairs, queries: NDArray[np.int64], candidates: NDArray[np.int64], n_candidates: int
) -> Pairs:
    """Query x becomes ``queries[x]``, candidate y ``candidates[y]`` among ``n_candidates``."""
    moved = replace(pairs, queries=queries[pairs.queries], candidates=candidates[pairs.candidates])
    return _sorted(moved, n_candidates)
