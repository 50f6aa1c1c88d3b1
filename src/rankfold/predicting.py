"""Ranked lists for many queries: files in, file out."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import torch

from rankfold.data.reading import Reading, expand, silent, spool_frames
from rankfold.data.tables import read_keys
from rankfold.errors import UserError
from rankfold.index.exact import block_rows
from rankfold.ranker import Ranker
from rankfold.types import Progress


def predict(
    ranker: Ranker,
    sources: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    k: int = 10,
    query: str | None = None,
    include_seen: bool = False,
    strict: bool = False,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Rank for every query of a table; write ``query, rank, candidate, score`` as Parquet.

    A query is ranked once, however often it is named. Queries that the model does not know are left
    out and counted; ``strict`` refuses them.
    """
    out = Path(out)
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise UserError(f"cannot write {out}", hint="name a file in a folder that exists")
    if out.suffix != ".parquet":
        raise UserError(f"cannot write {out}", hint=f"lists are Parquet: {out.stem}.parquet")
    if k < 1:
        raise UserError(f"k is {k}", hint="ask for at least 1 result")
    with tempfile.TemporaryDirectory(prefix="rankfold-") as scratch:
        reading = Reading(Path(scratch), progress=progress)
        keys = _keys(sources, query, reading)
        rows = ranker.queries.find(keys)
        known = rows >= 0
        if strict and not bool(known.all()):
            ranker.queries.rows(keys.filter(pl.Series((~known).numpy())).head(1).to_list())
        if not bool(known.any()):
            raise UserError(
                f"the model knows none of the {len(keys):,} queries",
                hint="is it the right column? name it with --query-column",
            )
        lists = _rank(ranker, rows[known], k, progress, include_seen=include_seen)
        schema = {
            "query": ranker.queries.keys.dtype,
            "rank": pl.Int32(),
            "candidate": ranker.candidates.keys.dtype,
            "score": pl.Float32(),
        }
        _write(spool_frames(lists, schema, reading), out)
    return {"queries": int(known.sum()), "unknown": int((~known).sum())}


def _keys(
    sources: str | Path | Sequence[str | Path], column: str | None, reading: Reading
) -> pl.Series:
    """The distinct query keys of all files, in the order of their first appearance."""
    listed = [sources] if isinstance(sources, str | Path) else sources
    parts = [read_keys(path, column, reading) for path in expand(listed)]
    if len({part.dtype for part in parts}) > 1:
        parts = [part.cast(pl.String) for part in parts]
    keys = pl.concat(parts).unique(maintain_order=True)
    if len(keys) == 0:
        raise UserError("the input has no queries", hint="a table needs a row per query")
    return keys


def _rank(
    ranker: Ranker, rows: torch.Tensor, k: int, progress: Progress, *, include_seen: bool
) -> Iterator[pl.DataFrame]:
    """The lists of ``rows``, one result per line, block by block."""
    step = block_rows(min(k, len(ranker.candidates)), 2**28)
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        found = ranker.top_k(block, k, ranker.hidden(block, include_seen=include_seen))
        real = found.ids >= 0
        place = torch.arange(1, found.ids.shape[1] + 1).expand_as(found.ids)
        yield pl.DataFrame(
            {
                "query": ranker.queries.take(block[:, None].expand_as(found.ids)[real]),
                "rank": pl.Series(place[real].numpy(), dtype=pl.Int32),
                "candidate": ranker.candidates.take(found.ids[real]),
                "score": found.scores[real].numpy(),
            }
        )
        progress("ranking", min(1.0, (start + step) / len(rows)))


def _write(table: pl.LazyFrame, out: Path) -> None:
    """Put the table at ``out`` at once."""
    partial = out.with_name(f".writing-{out.name}")
    try:
        table.sink_parquet(partial)
        partial.replace(out)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UserError(f"cannot write {out}: {error}", hint="nothing was replaced") from error
    finally:
        partial.unlink(missing_ok=True)
