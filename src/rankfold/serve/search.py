"""Requests to a model that ranks, several at a time, its keys, and the answers as JSON."""

from collections.abc import Hashable, Sequence
from functools import reduce
from operator import or_
from typing import Any

import polars as pl
import torch
from pydantic_core import to_json

from rankfold.models.ranker import Ranker
from rankfold.models.ranking import Ranking, SearchSpec, UnknownKey, search
from rankfold.models.reranking import pool_size
from rankfold.serve.errors import HttpError
from rankfold.serve.limits import Limits
from rankfold.types import Key, Vocabulary

DEPTHS = (10, 20, 50, 100, 200, 500)  # k is raised to one of them, so that requests share a search
SMALL = 100  # characters, keys or results of a small search
_MAX_COMPARED = 100  # characters of a key that are compared
_BLOCK_SIZE = 100_000  # keys that are searched for a text at a time


def _depth_of(request: SearchSpec) -> int:
    """How many candidates to search for."""
    return next((depth for depth in DEPTHS if depth >= request.k), request.k)


def group_of(request: SearchSpec) -> Hashable:
    """Requests with an equal group share a search: it holds all that a search depends on."""
    alone = id(request) if request.allow is not None or request.rules or request.explain else None
    shared = request.include_seen, request.where, request.thresholds
    return request.by, _depth_of(request), *shared, alone


def is_small(request: SearchSpec) -> bool:
    """Whether it is one short search, whose time depends on the model alone."""
    if len(request.inputs) != 1 or request.k > SMALL or request.explain or request.rules:
        return False
    if request.exclude or request.allow is not None or request.where is not None:
        return False
    only = request.inputs[0]
    return isinstance(only, int) or len(only) <= SMALL  # a key, history, text or features


def check_size(request: SearchSpec, limits: Limits) -> None:
    """An HttpError for a request whose cost, a product of two sizes, is too large."""
    n, k, rules = len(request.inputs), request.k, request.rules
    if request.explain and n * k > limits.explained:
        error = f"explain: {n:,} lists of {k:,} are more than {limits.explained:,} results"
        raise HttpError(400, error, "explain fewer lists, or use a smaller k")
    if n * k > limits.results:
        error = f"{n:,} lists of {k:,} are more than {limits.results:,} results"
        raise HttpError(400, error, "send several requests, or use a smaller k")
    chooses = bool(rules.at_most) or rules.diversity > 0
    if chooses and n * k * pool_size(k) > limits.compared:
        error = f"at_most and diversity: {n:,} lists of {k:,} take too long to choose"
        raise HttpError(400, error, "send several requests, or use a smaller k")
    for name, how, keys in (("pin", "with", rules.pin), ("exclude", "without", request.exclude)):
        if n * len(keys) > limits.excluded:
            each = f"{n:,} lists {how} {len(keys):,} candidates each"
            error = f"{name}: {each} are more than {limits.excluded:,}"
            raise HttpError(400, error, f"send several requests, or {name} fewer")


@torch.inference_mode()
def answer(ranker: Ranker, requests: Sequence[SearchSpec]) -> list[bytes | HttpError]:
    """A JSON document for each request of one group, or its problem."""
    alone, sides = len(requests) == 1, {"query": ranker.queries, "candidate": ranker.candidates}
    return [
        unknown(sides[one.side], one.key, one.side, near=alone)
        if isinstance(one, UnknownKey)
        else _document(one, ranker if request.with_features else None)
        for request, one in zip(
            requests, search(ranker, requests, _depth_of(requests[0])), strict=True
        )
    ]


def _document(ranking: Ranking, described_by: Ranker | None) -> bytes:
    """``{"results": [{"query", "candidates": [{"candidate", "score", "probability"?, ...}]}]}``.

    ``described_by``: the model whose features of candidates are added.
    """
    texts = [None] * len(ranking.keys) if ranking.texts is None else ranking.texts
    lists = zip(ranking.inputs, ranking.keys, ranking.scores.tolist(), texts, strict=True)
    results = [
        {"query": query, "candidates": _entries(keys, scores, shown)}
        for query, keys, scores, shown in lists
    ]
    if ranking.probabilities is not None:
        for result, chances in zip(results, ranking.probabilities.tolist(), strict=True):
            for entry, chance in zip(result["candidates"], chances, strict=False):
                entry["probability"] = chance
    for result, explanations in zip(results, ranking.explanations or (), strict=False):
        for entry, explanation in zip(result["candidates"], explanations, strict=True):
            entry |= explanation.to_json()
    if described_by is not None:
        for result, keys in zip(results, ranking.keys, strict=True):
            places = described_by.candidates.find(keys).numpy()
            rows = described_by.conditions.table[places].iter_rows(named=True)
            for entry, row in zip(result["candidates"], rows, strict=True):
                entry["features"] = row
    return to_json({"results": results}, inf_nan_mode="null")


def _entries(
    keys: Sequence[Key], scores: Sequence[float], texts: Sequence[str | None] | None
) -> list[dict[str, Any]]:
    pairs = zip(keys, scores, strict=False)  # scores are padded
    if texts is None:
        return [{"candidate": key, "score": score} for key, score in pairs]
    return [
        {"candidate": key, "score": score}
        if text is None
        else {"candidate": key, "text": text, "score": score}
        for (key, score), text in zip(pairs, texts, strict=True)
    ]


def unknown(keys: Vocabulary, key: Key, what: str, *, near: bool) -> HttpError:
    """The problem of an unknown key; ``near``: the hint names similar ones of its neighbours.

    These are few keys: other requests wait.
    """
    like = keys.nearest(str(key)[:_MAX_COMPARED], among_all=False) if near else []
    named = f"did you mean {', '.join(map(repr, like))}?" if like else ""
    return HttpError(404, f"unknown {what} {key!r}", named or f"GET /keys?side={what} finds keys")


def described(keys: Vocabulary, rows: Sequence[int], name: str) -> list[dict[str, Any]]:
    """The key of each row and, if it has one, its text."""
    held, texts = keys.keys, keys.texts  # one by one: faster than a gather for a few rows
    if texts is None:
        return [{name: held[row]} for row in rows]
    return [
        {name: held[row]} if (text := texts[row]) is None else {name: held[row], "text": text}
        for row in rows
    ]


def find_keys(ranker: Ranker, side: str, like: str, limit: int) -> bytes:
    """``{"keys": [{"key", "text"?}]}``."""
    keys = ranker.queries if side == "query" else ranker.candidates
    return to_json({"keys": described(keys, _matching_rows(keys, like, limit), "key")})


def read_history(ranker: Ranker, query: Key) -> bytes:
    """``{"query", "candidates": [{"candidate", "text"?}]}`` of a known query."""
    row = int(ranker.queries.find([query])[0])
    if row < 0:
        raise unknown(ranker.queries, query, "query", near=True)
    history = ranker.seen.part(row, row + 1)
    order = slice(None) if history.times is None else history.times.argsort(stable=True)
    chosen: list[int] = history.candidates[order].tolist()
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
        starts = reduce(or_, (each.str.starts_with(wanted) for each in words))
        contains = reduce(or_, (each.str.contains(wanted, literal=True) for each in words))
        starting += _true_rows(starts, start, limit - len(starting))
        containing += _true_rows(contains & ~starts, start, limit - len(containing))
        if len(starting) == limit:
            break
    return [*starting, *containing][:limit]


def _lowered(words: pl.Series, start: int) -> pl.Series:
    return words.slice(start, _BLOCK_SIZE).cast(pl.String).str.to_lowercase().fill_null("")


def _true_rows(mask: pl.Series, start: int, limit: int) -> list[int]:
    return [start + row for row in mask.arg_true().head(limit).to_list()]
