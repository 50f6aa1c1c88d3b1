"""The features and texts of queries and candidates.

Every key of a table gets a row, with pairs or without. The tables do not change the split of any
pair.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankfold.data.build import features, tokens
from rankfold.data.build.align import arrange, merge
from rankfold.data.build.pairs import Pairs, renumber
from rankfold.data.build.unspaced_scripts import unseparated
from rankfold.data.read.results import KeyedTable, TextTable, check_common
from rankfold.errors import pluralize
from rankfold.types import TRAIN, Features, Progress, Texts, Vocabulary

_FEWEST_ROWS = 10  # in which a column may agree with counts by more than chance
_SAME = 0.9999  # correlation of a column with what it was computed from


@dataclass(frozen=True, slots=True)
class SideTables:
    """The tables of features and texts, by side: ``query`` or ``candidate``."""

    features: Mapping[str, KeyedTable] = field(default_factory=dict)
    texts: Mapping[str, TextTable] = field(default_factory=dict)


class SideData(NamedTuple):
    """The features and texts of the rows, by side."""

    features: Mapping[str, Features]
    texts: Mapping[str, Texts]
    tokenizer: str | None
    n_tokens: int
    words: Mapping[str, pl.Series]  # as written
    summary: dict[str, Any]


def join(
    pairs: Pairs, keys: Mapping[str, pl.Series], tables: SideTables
) -> tuple[Pairs, dict[str, Vocabulary]]:
    """The pairs in a row space that includes the keys of the tables, and its keys."""
    joined = {side: Vocabulary.of(own) for side, own in keys.items()}
    every: list[tuple[str, KeyedTable | TextTable]]
    every = [*tables.features.items(), *tables.texts.items()]
    for side, table in every:
        check_common(table, Vocabulary.of(keys[side]))
        joined[side] = merge(joined[side], table.keys)
    if every:
        rows = {side: joined[side].find(own).numpy() for side, own in keys.items()}
        pairs = renumber(pairs, rows["query"], rows["candidate"], len(joined["candidate"]))
    return pairs, joined


def describe(
    pairs: Pairs,
    keys: Mapping[str, Vocabulary],
    tables: SideTables,
    kind: str,
    size: int | None,
    progress: Progress,
) -> SideData:
    """The features and texts of each row of ``keys``; words are learnt from train.

    Texts become tokens of a kind, one of ``tokens.KINDS``, at most ``size`` different ones.
    """
    aligned = {side: features.align(table, keys[side]) for side, table in tables.features.items()}
    texts = {
        side: arrange(table.bags, _places(table, keys[side]))
        for side, table in tables.texts.items()
        if table.bags is not None
    }
    words = {}
    for side in keys if tables.texts else ():
        of_side = None if side in texts else _words(tables.texts.get(side), side, keys[side])
        if of_side is not None:
            words[side] = of_side
    tokenizer, n_tokens = None, max([0, *(table.n_tokens for table in tables.texts.values())])
    if words:
        progress("learning words", 0.0)
        tokenizer = tokens.train_tokenizer(_training_words(pairs, words), kind, size)
        n_tokens = max(n_tokens, tokens.n_tokens(tokenizer))
        texts |= {side: tokens.tokenise(tokenizer, own, progress) for side, own in words.items()}
    summary: dict[str, Any] = {}
    if aligned:
        summary["features"] = {
            side: _features_summary(table, aligned[side], pairs, side)
            for side, table in tables.features.items()
        }
    if texts:
        kind = "bags" if tokenizer is None else kind
        summary["texts"] = {"kind": kind, "tokens": n_tokens} | {
            side: _texts_summary(of_side, tables.texts.get(side), pairs, side)
            | ({"unseparated": scripts} if (scripts := unseparated(words.get(side, ()))) else {})
            for side, of_side in texts.items()
        }
    return SideData(aligned, texts, tokenizer, n_tokens, words, summary)


# ---------------------------------------------------------------------------------- texts


def _words(table: TextTable | None, side: str, keys: Vocabulary) -> pl.Series | None:
    """The words of each row; a candidate without words has its key, if that is text."""
    words = None
    if table is not None and table.words is not None:
        places = pl.Series(_places(table, keys).numpy())
        words = table.words.gather(pl.select(pl.when(places >= 0).then(places)).to_series())
    if side == "candidate" and not keys.holds_integers:
        words = keys.keys if words is None else words.fill_null(keys.keys)
    return words


def _places(table: TextTable, keys: Vocabulary) -> Tensor:
    """The place of each row in a table, -1 if it is not there."""
    places = torch.full((len(keys),), -1)
    places[keys.find(table.keys)] = torch.arange(len(table.keys))
    return places


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
    numbers, levels = aligned.columns.numbers, aligned.columns.levels
    reasons = {name: features.doubt(table.values[name]) for name in levels}
    suspect = _suspect(table, aligned, pairs, side)
    return {
        "rows": len(table.keys),
        "numbers": len(numbers),
        "categories": len(levels),
        "left_out": sorted(set(table.values.columns) - {*numbers, *levels}),
        "doubtful": [{"column": name, "why": why} for name, why in reasons.items() if why],
        "without_pairs": len(aligned.numbers) - _with_pairs(pairs, side),
        "without_features": len(aligned.numbers) - len(table.keys),
        **({"suspect": suspect} if suspect else {}),
        "dropped": table.bad.summary(),
    }


def _suspect(table: KeyedTable, aligned: Features, pairs: Pairs, side: str) -> list[dict[str, str]]:
    """Columns that repeat another one, from all pairs, or with numbers that are too large."""
    why = {
        name: f"has {pluralize(n, 'value')} beyond 3.4e38, which count as missing"
        for name in aligned.columns.numbers
        if (n := int(features.too_large(table.values[name]).sum()))
    }
    for name, other in features.copies(table.values).items():
        why[name] = f"has the same values as {other}"
    rows = pairs.queries if side == "query" else pairs.candidates
    counts = np.bincount(rows, minlength=len(aligned.numbers)).astype(np.float64)
    leaks = {"the number of pairs": counts}
    if pairs.grades is not None:
        sums = np.bincount(rows, weights=pairs.grades, minlength=len(counts))
        leaks["the mean grade"] = sums / np.maximum(counts, 1)
    for place, name in enumerate(aligned.columns.numbers):
        values = aligned.numbers[:, place].double().numpy()
        known = ~np.isnan(values) & (counts > 0)
        for what, leak in leaks.items():
            if known.sum() >= _FEWEST_ROWS and _agree(values[known], leak[known]):
                why[name] = f"is {what}, those of validation and test included"
    return [{"column": name, "why": reason} for name, reason in why.items()]


def _agree(values: NDArray[np.float64], others: NDArray[np.float64]) -> bool:
    """Whether two columns are the same up to scale, and not constant."""
    if np.ptp(values) == 0 or np.ptp(others) == 0:
        return False
    return bool(np.corrcoef(values, others)[0, 1] > _SAME)


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
