"""Look up keys for completion, and the history of a known query."""

import polars as pl
from pydantic_core import to_json

from rankfold.models.ranker import Ranker
from rankfold.serve.search import described, unknown
from rankfold.types import Key, Vocabulary

_BLOCK_SIZE = 100_000  # keys


def find_keys(ranker: Ranker, side: str, like: str, limit: int) -> bytes:
    """``{"keys": [{"key", "text"?}]}``."""
    keys = ranker.queries if side == "query" else ranker.candidates
    return to_json({"keys": described(keys, _matching_rows(keys, like, limit), "key")})


def read_history(ranker: Ranker, query: Key) -> bytes:
    """``{"query", "candidates": [{"candidate", "text"?}]}`` of a known query."""
    row = int(ranker.queries.find([query])[0])
    if row < 0:
        raise unknown(ranker.queries, query, "query", near=True)
    chosen: list[int] = ranker.seen.part(row, row + 1).candidates.tolist()
    candidates = described(ranker.candidates, chosen, "candidate")
    return to_json({"query": ranker.queries.keys[row], "candidates": candidates})


def _matching_rows(keys: Vocabulary, like: str, limit: int) -> list[int]:
    """Rows whose key or text starts with ``like``, then those that contain it; ignores case."""
    if not like:
        return list(range(min(limit, len(keys))))
    wanted = like.lower()
    starting: list[int] = []
    containing: list[int] = []
    for start in range(0, len(keys), _BLOCK_SIZE):
        words = [_lowered(keys.keys, start)]
        if keys.texts is not None:
            words.append(_lowered(keys.texts, start))
        starts = _any_of([each.str.starts_with(wanted) for each in words])
        contains = _any_of([each.str.contains(wanted, literal=True) for each in words]) & ~starts
        starting += _true_rows(starts, start, limit - len(starting))
        containing += _true_rows(contains, start, limit - len(containing))
        if len(starting) == limit:
            break
    return [*starting, *containing][:limit]


def _lowered(words: pl.Series, start: int) -> pl.Series:
    return words.slice(start, _BLOCK_SIZE).cast(pl.String).str.to_lowercase()


def _any_of(masks: list[pl.Series]) -> pl.Series:
    result = masks[0].fill_null(value=False)
    for mask in masks[1:]:
        result = result | mask.fill_null(value=False)
    return result


def _true_rows(mask: pl.Series, start: int, limit: int) -> list[int]:
    return [start + row for row in mask.arg_true().head(limit).to_list()]
