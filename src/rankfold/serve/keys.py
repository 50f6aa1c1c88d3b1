"""Keys that contain a text, and what a known query chose: for completing and for showing."""

from __future__ import annotations

from typing import Any

import polars as pl
from pydantic_core import to_json

from rankfold.models.ranker import Ranker
from rankfold.serve.search import described, keys_of, unknown
from rankfold.types import Key, Vocabulary

BLOCK = 100_000  # keys at a time


def keys_like(ranker: Ranker, side: str, like: str, limit: int) -> bytes:
    """``{"keys": [{"key", "text"?}]}``."""
    keys = ranker.queries if side == "query" else ranker.candidates
    return to_json({"keys": described(keys, find_like(keys, like, limit), "key")})


def history_of(ranker: Ranker, query: Key) -> bytes:
    """``{"query", "candidates": [{"candidate", "text"?}]}``: what a known query chose."""
    row = int(ranker.queries.find([query])[0])
    if row < 0:
        raise unknown(ranker.queries, query, "query", near=True)
    chosen: list[int] = ranker.seen.part(row, row + 1).candidates.tolist()
    answer: dict[str, Any] = {"query": keys_of(ranker.queries, [row])[0]}
    return to_json({**answer, "candidates": described(ranker.candidates, chosen, "candidate")})


def find_like(keys: Vocabulary, like: str, limit: int) -> list[int]:
    """Rows whose key or text begins with ``like``, then others that contain it; in any letters."""
    if not like:
        return list(range(min(limit, len(keys))))
    wanted = like.lower()
    beginning: list[int] = []
    containing: list[int] = []
    for start in range(0, len(keys), BLOCK):
        words = [_lowered(keys.keys, start)]
        if keys.texts is not None:
            words.append(_lowered(keys.texts, start))
        begins = _either([each.str.starts_with(wanted) for each in words])
        within = _either([each.str.contains(wanted, literal=True) for each in words]) & ~begins
        beginning += _places(begins, start, limit - len(beginning))
        containing += _places(within, start, limit - len(containing))
        if len(beginning) == limit:
            break
    return [*beginning, *containing][:limit]


def _lowered(words: pl.Series, start: int) -> pl.Series:
    return words.slice(start, BLOCK).cast(pl.String).str.to_lowercase()


def _either(masks: list[pl.Series]) -> pl.Series:
    found = masks[0].fill_null(value=False)
    for mask in masks[1:]:
        found = found | mask.fill_null(value=False)
    return found


def _places(mask: pl.Series, start: int, most: int) -> list[int]:
    return [start + place for place in mask.arg_true().head(most).to_list()]
