"""The features and texts of queries and candidates.

Every key of a table gets a row, with pairs or without. The tables do not change the split of any
pair.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch

from rankfold.data.build import features, tokens
from rankfold.data.build.align import arrange
from rankfold.data.build.pairs import Pairs, renumber
from rankfold.data.read.keyed_tables import KeyedTable, TextTable
from rankfold.types import TRAIN, Features, Progress, Texts, Vocabulary


@dataclass(frozen=True, slots=True)
class SideTables:
    """The tables of features and texts, by side: ``query`` or ``candidate``."""

    features: Mapping[str, KeyedTable] = field(default_factory=dict)
    texts: Mapping[str, TextTable] = field(default_factory=dict)


class SideTexts(NamedTuple):
    """The texts of the rows, by side."""

    tokens: Mapping[str, Texts]
    tokenizer: str | None
    n_tokens: int
    words: Mapping[str, pl.Series]  # as written


class SideData(NamedTuple):
    """The features and texts of the rows, by side, and their summary."""

    features: Mapping[str, Features]
    texts: SideTexts
    summary: dict[str, Any]


class TokenOptions(NamedTuple):
    """The tokens that texts are turned into."""

    kind: str  # a name in ``tokens.KINDS``
    size: int | None  # the maximum number of tokens


def join(
    pairs: Pairs, keys: Mapping[str, pl.Series], tables: SideTables
) -> tuple[Pairs, dict[str, Vocabulary]]:
    """The pairs in a row space that includes the keys of the tables, and its keys."""
    of_sides = (tables.features, tables.texts)
    joined = {
        side: features.with_table_keys(own, *(table.get(side) for table in of_sides))
        for side, own in keys.items()
    }
    if any(of_sides):
        rows = {side: joined[side].find(own).numpy() for side, own in keys.items()}
        pairs = renumber(pairs, rows["query"], rows["candidate"], len(joined["candidate"]))
    return pairs, joined


def describe(
    pairs: Pairs,
    keys: Mapping[str, Vocabulary],
    tables: SideTables,
    options: TokenOptions,
    progress: Progress,
) -> SideData:
    """The features and texts of each row of ``keys``; words are learnt from train."""
    aligned = {side: features.align(table, keys[side]) for side, table in tables.features.items()}
    texts = _tokenise(pairs, keys, tables.texts, options, progress)
    summary: dict[str, Any] = {}
    if aligned:
        summary["features"] = {
            side: _features_summary(table, aligned[side], pairs, side)
            for side, table in tables.features.items()
        }
    if texts.tokens:
        kind = "bags" if texts.tokenizer is None else options.kind
        summary["texts"] = {"kind": kind, "tokens": texts.n_tokens} | {
            side: _texts_summary(of_side, tables.texts.get(side), pairs, side)
            for side, of_side in texts.tokens.items()
        }
    return SideData(aligned, texts, summary)


# ---------------------------------------------------------------------------------- texts


def _tokenise(
    pairs: Pairs,
    keys: Mapping[str, Vocabulary],
    tables: Mapping[str, TextTable],
    options: TokenOptions,
    progress: Progress,
) -> SideTexts:
    """Bags as they are; words as tokens of a tokenizer that is trained here."""
    bags = {
        side: _bags(table.bags, table, keys[side])
        for side, table in tables.items()
        if table.bags is not None
    }
    words = {}
    for side in keys if tables else ():
        of_side = None if side in bags else _words(tables.get(side), side, keys[side])
        if of_side is not None:
            words[side] = of_side
    size = max([0, *(table.n_tokens for table in tables.values())])
    if not words:
        return SideTexts(bags, None, size, words)
    progress("learning words", 0.0)
    tokenizer = tokens.train_tokenizer(_training_words(pairs, words), options.kind, options.size)
    tokenised = {side: tokens.tokenise(tokenizer, own, progress) for side, own in words.items()}
    return SideTexts(bags | tokenised, tokenizer, max(size, tokens.n_tokens(tokenizer)), words)


def _words(table: TextTable | None, side: str, keys: Vocabulary) -> pl.Series | None:
    """The words of each row; a candidate without words has its key, if that is text."""
    words = None
    if table is not None and table.words is not None:
        words = table.words.gather(_places(table, keys))
    if side == "candidate" and not keys.holds_integers:
        words = keys.keys if words is None else words.fill_null(keys.keys)
    return words


def _places(table: TextTable, keys: Vocabulary) -> pl.Series:
    """The place of each row in a table, null if it is not there."""
    places = np.full(len(keys), -1)
    places[keys.find(table.keys).numpy()] = np.arange(len(table.keys))
    series = pl.Series(places)
    return pl.select(pl.when(series >= 0).then(series)).to_series()


def _bags(bags: Texts, table: TextTable, keys: Vocabulary) -> Texts:
    """The bag of each row, empty if the table has none."""
    rows = _places(table, keys).fill_null(-1).to_numpy(writable=True)
    return arrange(bags, torch.from_numpy(rows))


def _training_words(pairs: Pairs, words: Mapping[str, pl.Series]) -> Iterator[str]:
    """The words of all candidates, and of the queries with a training pair."""
    parts = [words["candidate"]] if "candidate" in words else []
    if "query" in words:
        parts.append(words["query"].gather(np.unique(pairs.queries[pairs.splits == TRAIN])))
    return chain.from_iterable(part.drop_nulls() for part in parts)


# ---------------------------------------------------------------------------------- summaries


def _features_summary(
    table: KeyedTable, aligned: Features, pairs: Pairs, side: str
) -> dict[str, Any]:
    return {
        "rows": len(table.keys),
        "numbers": len(aligned.columns.numbers),
        "categories": len(aligned.columns.levels),
        "left_out": features.left_out(table, aligned),
        "doubtful": features.doubtful(table, aligned),
        "without_pairs": len(aligned.numbers) - _with_pairs(pairs, side),
        "without_features": len(aligned.numbers) - len(table.keys),
        "dropped": table.bad.summary(),
    }


def _texts_summary(
    texts: Texts, table: TextTable | None, pairs: Pairs, side: str
) -> dict[str, Any]:
    counts, n_given = texts.counts(), 0
    if table is not None:
        n_given = len(table.keys) if table.words is None else int(table.words.count())
    return {
        "rows": len(texts),
        "median": int(counts.median()),
        "max": int(counts.max()),
        "empty": int((counts == 0).sum()),
        "without_pairs": len(texts) - _with_pairs(pairs, side),
        "without_text": len(texts) - n_given,
        "dropped": [] if table is None else table.bad.summary(),
    }


def _with_pairs(pairs: Pairs, side: str) -> int:
    return len(np.unique(pairs.queries if side == "query" else pairs.candidates))
