"""What is known of queries and candidates besides their pairs: features and texts.

Every key of a table gets a row, with pairs or without; which pairs are in which split does not
depend on the tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch

from rankfold.data.build import features, split
from rankfold.data.build import tokens as texts
from rankfold.data.build.align import arrange_texts
from rankfold.data.build.pairs import Pairs, move
from rankfold.data.read.documents import TextTable
from rankfold.data.read.files import BadRows
from rankfold.types import Features, Progress, Texts, Vocabulary


@dataclass(frozen=True, slots=True)
class Told:
    """The tables that were read, by side: ``query`` or ``candidate``."""

    features: Mapping[str, features.Table] = field(default_factory=dict)
    texts: Mapping[str, TextTable] = field(default_factory=dict)


class Written(NamedTuple):
    """The texts of the rows, by side."""

    texts: Mapping[str, Texts]
    tokenizer: str | None
    n_tokens: int
    words: Mapping[str, pl.Series]  # as they were written


class Known(NamedTuple):
    """What is known of the rows, by side, and what to tell of it."""

    features: Mapping[str, Features]
    written: Written
    summary: dict[str, Any]


class Tokens(NamedTuple):
    """What texts are to be turned into."""

    kind: str
    size: int | None


def join(
    pairs: Pairs, keys: Mapping[str, pl.Series], told: Told
) -> tuple[Pairs, dict[str, Vocabulary]]:
    """The pairs among all rows, and the keys of these."""
    tables = (told.features, told.texts)
    joined = {
        side: features.joined(own, *(t.get(side) for t in tables)) for side, own in keys.items()
    }
    if any(tables):
        rows = {side: joined[side].find(own).numpy() for side, own in keys.items()}
        pairs = move(pairs, rows["query"], rows["candidate"], len(joined["candidate"]))
    return pairs, joined


def describe(
    pairs: Pairs, keys: Mapping[str, Vocabulary], told: Told, tokens: Tokens, progress: Progress
) -> Known:
    """Features and texts of each row of ``keys``; words are learnt from what is for training."""
    known = {side: features.align(table, keys[side]) for side, table in told.features.items()}
    written = _write(pairs, keys, told.texts, tokens, progress)
    summary: dict[str, Any] = {}
    if known:
        summary["features"] = {
            side: _features_summary(table, known[side], pairs, side)
            for side, table in told.features.items()
        }
    if written.texts:
        kind = "bags" if written.tokenizer is None else tokens.kind
        summary["texts"] = {"kind": kind, "tokens": written.n_tokens} | {
            side: _texts_summary(found, told.texts.get(side), pairs, side)
            for side, found in written.texts.items()
        }
    return Known(known, written, summary)


def dropped(bad: BadRows) -> list[dict[str, Any]]:
    """Rows that were left out, for a summary."""
    return [
        {"why": reason, "rows": n, "first": bad.places[reason]} for reason, n in bad.counts.items()
    ]


# ---------------------------------------------------------------------------------- texts


def _write(
    pairs: Pairs,
    keys: Mapping[str, Vocabulary],
    tables: Mapping[str, TextTable],
    tokens: Tokens,
    progress: Progress,
) -> Written:
    """Bags as they are, words as tokens of a tokenizer that is trained here."""
    bags = {
        side: _bags(table.bags, table, keys[side])
        for side, table in tables.items()
        if table.bags is not None
    }
    words = {}
    for side in keys if tables else ():
        found = None if side in bags else _words(tables.get(side), side, keys[side])
        if found is not None:
            words[side] = found
    size = max([0, *(table.n_tokens for table in tables.values())])
    if not words:
        return Written(bags, None, size, words)
    progress("learning words", 0.0)
    tokenizer = texts.train_tokenizer(_for_training(pairs, words), tokens.kind, tokens.size)
    written = {side: texts.tokenise(tokenizer, mine, progress) for side, mine in words.items()}
    return Written(bags | written, tokenizer, max(size, texts.n_tokens(tokenizer)), words)


def _words(table: TextTable | None, side: str, keys: Vocabulary) -> pl.Series | None:
    """The words of each row; a candidate without any is known by its key, if that is text."""
    words = None
    if table is not None and table.words is not None:
        words = table.words.gather(_places(table, keys))
    if side == "candidate" and not keys.holds_integers:
        words = keys.keys if words is None else words.fill_null(keys.keys)
    return words


def _places(table: TextTable, keys: Vocabulary) -> pl.Series:
    """Where each row stands in a table, null where it does not."""
    places = np.full(len(keys), -1)
    places[keys.find(table.keys).numpy()] = np.arange(len(table.keys))
    found = pl.Series(places)
    return pl.select(pl.when(found >= 0).then(found)).to_series()


def _bags(bags: Texts, table: TextTable, keys: Vocabulary) -> Texts:
    """The bag of each row; an empty one where the table has none."""
    rows = _places(table, keys).fill_null(-1).to_numpy(writable=True)
    return arrange_texts(bags, torch.from_numpy(rows))


def _for_training(pairs: Pairs, words: Mapping[str, pl.Series]) -> Iterator[str]:
    """The words of all candidates, and of the queries that have a training pair."""
    parts = [words["candidate"]] if "candidate" in words else []
    if "query" in words:
        parts.append(words["query"].gather(np.unique(pairs.queries[pairs.splits == split.TRAIN])))
    return chain.from_iterable(part.drop_nulls() for part in parts)


# ---------------------------------------------------------------------------------- summaries


def _features_summary(
    table: features.Table, known: Features, pairs: Pairs, side: str
) -> dict[str, Any]:
    return {
        "rows": len(table.keys),
        "numbers": len(known.columns.numbers),
        "categories": len(known.columns.levels),
        "left_out": features.left_out(table, known),
        "doubtful": features.doubtful(table, known),
        "without_pairs": len(known.numbers) - _with_pairs(pairs, side),
        "without_features": len(known.numbers) - len(table.keys),
        "dropped": dropped(table.bad),
    }


def _texts_summary(
    found: Texts, table: TextTable | None, pairs: Pairs, side: str
) -> dict[str, Any]:
    counts = found.counts()
    return {
        "rows": len(found),
        "median": int(counts.median()),
        "max": int(counts.max()),
        "empty": int((counts == 0).sum()),
        "without_pairs": len(found) - _with_pairs(pairs, side),
        "without_text": len(found) - (0 if table is None else _with_text(table)),
        "dropped": [] if table is None else dropped(table.bad),
    }


def _with_pairs(pairs: Pairs, side: str) -> int:
    return len(np.unique(pairs.queries if side == "query" else pairs.candidates))


def _with_text(table: TextTable) -> int:
    return len(table.keys) if table.words is None else int(table.words.count())
