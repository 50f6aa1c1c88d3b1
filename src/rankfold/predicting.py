"""Ranked lists for many queries: files in, file out."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import polars as pl
import torch

from rankfold.data.reading import Reading, expand, silent
from rankfold.data.tables import read_keys
from rankfold.errors import UserError
from rankfold.ranker import Ranker
from rankfold.types import Progress

BLOCK = 4096  # queries between two reports of progress


def predict(
    ranker: Ranker,
    source: str | Path,
    out: str | Path,
    *,
    k: int = 10,
    query: str | None = None,
    include_seen: bool = False,
    strict: bool = False,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Rank for every query of a table; write ``query, rank, candidate, score`` as Parquet.

    Queries that the model does not know are left out and counted; ``strict`` refuses them.
    """
    out = Path(out)
    if not out.absolute().parent.is_dir():
        raise UserError(f"there is no folder {out.absolute().parent}", hint="create it first")
    if k < 1:
        raise UserError(f"k is {k}", hint="ask for at least 1 result")
    with tempfile.TemporaryDirectory(prefix="rankfold-") as scratch:
        (path,) = expand([source])
        keys = read_keys(path, query, Reading(Path(scratch), progress=progress))
    rows = ranker.queries.find(keys)
    known = rows >= 0
    if strict and not bool(known.all()):
        ranker.queries.rows(keys.filter(pl.Series((~known).numpy())).head(1).to_list())
    if not bool(known.any()):
        raise UserError(
            f"the model knows none of the {len(keys):,} queries of {path.name}",
            hint="is it the right column? name it with --query-column",
        )
    table = _rank(ranker, rows[known], k, progress, include_seen=include_seen)
    partial = out.with_name(f".writing-{out.name}")
    try:
        table.write_parquet(partial)
        partial.replace(out)
    except OSError as error:
        raise UserError(f"cannot write {out}: {error}", hint="nothing was replaced") from error
    finally:
        partial.unlink(missing_ok=True)
    return {"queries": int(known.sum()), "unknown": int((~known).sum()), "rows": len(table)}


def _rank(
    ranker: Ranker, rows: torch.Tensor, k: int, progress: Progress, *, include_seen: bool
) -> pl.DataFrame:
    """The lists of all ``rows``, one result per line."""
    blocks = []
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK]
        found = ranker.top_k(block, k, ranker.hidden(block, include_seen=include_seen))
        real = found.ids >= 0
        place = torch.arange(1, found.ids.shape[1] + 1).expand_as(found.ids)
        blocks.append(
            (
                block[:, None].expand_as(found.ids)[real],
                place[real],
                found.ids[real],
                found.scores[real],
            )
        )
        progress("ranking", min(1.0, (start + BLOCK) / len(rows)))
    query, rank, candidate, score = (torch.cat(parts) for parts in zip(*blocks, strict=True))
    return pl.DataFrame(
        {
            "query": ranker.queries.take(query),
            "rank": pl.Series(rank.numpy(), dtype=pl.Int32),
            "candidate": ranker.candidates.take(candidate),
            "score": score.numpy(),
        }
    )
