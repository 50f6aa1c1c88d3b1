"""From keys to ranked lists of keys: keys -> rows -> hidden pairs -> the best rows -> keys.

Python, the command line, ``predict`` and the server all search here. ``models/search.py`` finds the
best rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankfold.errors import UserError, pluralize
from rankfold.models.explain.ranking import Explanation, explain
from rankfold.models.probabilities import NOTE, of_lists
from rankfold.models.reranking import NO_RULES, Rules, by_rules
from rankfold.models.search import NO_FILTER, Filter, union
from rankfold.models.thresholds import passing
from rankfold.types import (
    Features,
    Interactions,
    Key,
    Side,
    Tabular,
    Texts,
    TopK,
    Vocabulary,
    from_pairs,
)
from rankfold.types.vocabulary import as_rows, listed

if TYPE_CHECKING:
    from rankfold.models.ranker import Ranker

By = Literal["queries", "history", "features", "text", "candidates"]
Inputs = Tensor | Interactions | Features | Texts
T = TypeVar("T")
_SHOWN, _LINE = 5, 100  # lists, and characters of a line, in a repr


class RankedList(NamedTuple):
    """The results of one query, best first."""

    query: Any  # its key, text or history
    keys: list[Key]
    scores: NDArray[np.float32]  # as many as keys


@dataclass(frozen=True, slots=True, eq=False)
class Ranking(Tabular):
    """Ranked lists in keys, best first. Iteration gives a ``RankedList`` for each query."""

    keys: list[list[Key]]  # a list is shorter than K where there are fewer candidates
    scores: NDArray[np.float32]  # [B, K], -inf beyond the end of a list
    texts: list[list[str | None]] | None = None  # beside the keys; None: no candidate has one
    inputs: Sequence[Any] = ()  # of each list; keys as the model holds them
    explanations: list[list[Explanation]] | None = None  # of each result, if asked for
    probabilities: NDArray[np.float32] | None = None
    """[B, K], that a result is right; only for texts and queries of a model that learnt them."""

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[RankedList]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, place: int) -> RankedList:
        keys = self.keys[place]
        return RankedList(self._queries()[place], keys, self.scores[place, : len(keys)])

    def __repr__(self) -> str:
        head = f"<Ranking: {pluralize(len(self), 'list')} of up to {self.scores.shape[1]}>"
        lists = [f"{one.query}: {', '.join(map(str, one.keys))}" for one in islice(self, _SHOWN)]
        rest = ["..."] if len(self) > _SHOWN else []
        return "\n".join([head, *(shorten(one, _LINE, placeholder=" ...") for one in lists), *rest])

    def to_polars(self) -> pl.DataFrame:
        """One row per result: query, rank, candidate, score; probability and text if they exist."""
        lengths = [len(keys) for keys in self.keys]
        places = np.arange(len(self)).repeat(lengths)
        columns = {
            "query": pl.Series(self._queries()).gather(places),
            "rank": pl.Series([*chain(*map(range, lengths))], dtype=pl.Int32) + 1,
            "candidate": pl.Series([*chain(*self.keys)]),
            "score": np.concatenate([np.empty(0, np.float32), *(row.scores for row in self)]),
        }
        if self.probabilities is not None:
            columns["probability"] = self.probabilities[self.scores > -np.inf]
        if self.texts is not None:
            columns["text"] = pl.Series([*chain(*self.texts)], dtype=pl.String)
        if self.explanations is not None:
            words = map(str, chain(*self.explanations))
            columns["because"] = pl.Series([*words], dtype=pl.String)
        return pl.DataFrame(columns)

    def _queries(self) -> Sequence[Any]:
        """The input of each list; its place if there is none."""
        return self.inputs or range(len(self))


@dataclass(frozen=True, slots=True, eq=False)
class SearchSpec:
    """The arguments of a search: one list is made for each input."""

    by: By
    inputs: Sequence[Any]
    """Keys of queries or candidates, histories (lists of keys), features (mappings), or texts."""
    k: int = 10
    exclude: Sequence[Key] = ()  # candidates that are not returned; unknown ones are ignored
    allow: Sequence[Key] | None = None  # the only candidates to return; unknown ones are ignored
    include_seen: bool = False  # also return what the query chose before
    where: str | None = None  # only candidates whose features meet this condition
    rules: Rules = NO_RULES
    explain: int = 0  # the number of contributions to each score
    with_features: bool = False  # for HTTP: also return the features of each candidate
    thresholds: str | None = None  # only results that reach those of this goal


class UnknownKey(NamedTuple):
    """The first key of a spec that the model does not know."""

    key: Key
    side: Side


def search(
    ranker: Ranker, specs: Sequence[SearchSpec], depth: int | None = None
) -> list[Ranking | UnknownKey]:
    """The lists of each spec, by one search for all of them.

    Args:
        ranker: a model.
        specs: they agree in ``by``, ``include_seen``, ``allow``, ``where`` and ``thresholds``.
            A spec with rules or explanations is searched alone.
        depth: how many candidates to search for, at least every ``k``; default: the largest ``k``.
    """
    answers = _find(ranker, specs)
    known = [place for place, rows in enumerate(answers) if not isinstance(rows, UnknownKey)]
    if known:
        most = max(spec.k for spec in specs) if depth is None else depth
        some = [specs[place] for place in known]
        rankings = _rank(ranker, some, [answers[place] for place in known], most)
        for place, ranking in zip(known, rankings, strict=True):
            answers[place] = ranking
    return answers


def best(
    ranker: Ranker,
    by: By,
    inputs: Inputs,
    k: int,
    *,
    filter: Filter = NO_FILTER,
    include_seen: bool = False,
    rules: Rules = NO_RULES,
) -> TopK:
    """The best candidates as rows, without hidden pairs.

    Args:
        ranker: a model.
        by: the kind of ``inputs``.
        inputs: rows [B] of queries or candidates, histories, features, or texts in the model's
            tokens.
        k: the length of a list.
        filter: more candidates to leave out.
        include_seen: also return what a known query or a history has chosen.
        rules: how the lists depart from the order of scores.
    """
    find = partial(_best, ranker, by, inputs)
    if not rules:
        return find(k, filter, include_seen)
    return by_rules(ranker, find, k, filter, rules, include_seen=include_seen)


def _best(
    ranker: Ranker,
    by: By,
    inputs: Inputs,
    k: int,
    filter: Filter,
    include_seen: bool,  # noqa: FBT001
) -> TopK:
    searcher = ranker.searcher
    if isinstance(inputs, Texts):
        return searcher.of_texts(inputs, k, filter)
    if isinstance(inputs, Interactions):
        seen = None if include_seen else inputs
        return searcher.of_histories(inputs, k, filter.without(seen))
    if isinstance(inputs, Features):
        return searcher.of_features(inputs, k, filter)
    if by == "candidates":
        return searcher.like(inputs, k, filter)
    seen = hidden(ranker, inputs, include_seen=include_seen)
    return searcher.of_queries(inputs, k, filter.without(seen))


def hidden(ranker: Ranker, rows: Tensor, *, include_seen: bool = False) -> Interactions | None:
    """What may not be returned for known queries, a row each."""
    excluded = None if ranker.excluded is None else ranker.excluded.select(rows)
    return excluded if include_seen else union(ranker.seen.select(rows), excluded)


# ---------------------------------------------------------------------------------- keys -> rows


def _find(ranker: Ranker, specs: Sequence[SearchSpec]) -> list[Any]:
    """Of each spec: rows, the rows of each history in its order, texts; or an unknown key."""
    by = specs[0].by
    if by in ("text", "features"):
        return [spec.inputs for spec in specs]
    if by == "queries":
        return _rows(ranker.queries, [spec.inputs for spec in specs], "query")
    if by == "candidates":
        return _rows(ranker.candidates, [spec.inputs for spec in specs], "candidate")
    flat = [list(chain.from_iterable(spec.inputs)) for spec in specs]
    return [
        rows if isinstance(rows, UnknownKey) else _cut(rows, map(len, spec.inputs))
        for spec, rows in zip(specs, _rows(ranker.candidates, flat, "candidate"), strict=True)
    ]


def _rows(
    keys: Vocabulary, lists: Sequence[Sequence[Key]], side: Side
) -> list[list[int] | UnknownKey]:
    every = _cut(keys.find_list(list(chain.from_iterable(lists))), map(len, lists))
    return [
        UnknownKey(given[rows.index(-1)], side) if -1 in rows else rows
        for given, rows in zip(lists, every, strict=True)
    ]


def _known(keys: Vocabulary, wanted: Sequence[Key]) -> Tensor:
    """The rows of the known keys, ascending, each once."""
    rows: Tensor = keys.find(wanted).unique()
    return rows[rows >= 0]


# ---------------------------------------------------------------------------------- rows -> lists


def _rank(
    ranker: Ranker, specs: Sequence[SearchSpec], rows: Sequence[Any], depth: int
) -> list[Ranking]:
    first = specs[0]
    filter = Filter(_excluded(ranker.candidates, specs), _allowed(ranker, first))
    inputs = _joined(ranker, first.by, rows)
    top = best(
        ranker,
        first.by,
        inputs,
        first.k if first.rules else depth,
        filter=filter,
        include_seen=first.include_seen,
        rules=first.rules,
    )
    keys = {"queries": ranker.queries, "candidates": ranker.candidates}.get(first.by)
    if first.thresholds is not None:
        top = _passing(ranker, first, inputs, top)
    ids, scores = top.ids.cpu().numpy(), top.scores.cpu().numpy()
    chances = None
    if first.by in ("text", "queries") and not first.rules and NOTE in ranker.model.notes:
        known = _known_words(ranker, inputs)
        chances = of_lists(ranker.model, top, ranker.seen, known).numpy()
    rankings, stop = [], 0
    for spec, own in zip(specs, rows, strict=True):
        start, stop = stop, stop + len(spec.inputs)
        part = ids[start:stop, : spec.k], scores[start:stop, : spec.k]
        given = spec.inputs if keys is None else listed(keys.keys, own)
        own_chances = None if chances is None else chances[start:stop, : spec.k]
        ranking = _in_keys(ranker.candidates, *part, given)
        rankings.append(replace(ranking, probabilities=own_chances))
    if first.explain:
        top = top.first(first.k)
        explanations = explain(ranker, first.by, inputs, top, first.explain)
        rankings = [replace(rankings[0], explanations=explanations)]
    return rankings


def _passing(ranker: Ranker, spec: SearchSpec, inputs: Inputs, top: TopK) -> TopK:
    """The results that reach the thresholds; a UserError for lists that have none."""
    assert spec.thresholds is not None
    if spec.by not in ("text", "queries") or spec.rules:
        other = "rules that change scores" if spec.rules else f"lists by {spec.by}"
        raise UserError(
            f"`thresholds` are for scores of texts, not for {other}", hint="leave one of them out"
        )
    thresholds = ranker.searcher.thresholds(spec.thresholds)
    return passing(top, thresholds, _known_words(ranker, inputs))


def _known_words(ranker: Ranker, inputs: Inputs) -> Tensor | None:
    """Which texts have a known word; None for queries without texts."""
    if isinstance(inputs, Texts):
        return inputs.counts() > 0
    if ranker.texts is None or not isinstance(inputs, Tensor):
        return None
    return ranker.texts.counts()[inputs] > 0


def _joined(ranker: Ranker, by: By, rows: Sequence[Any]) -> Inputs:
    """The inputs of all specs."""
    if by == "text":
        return ranker.tokens(list(chain.from_iterable(rows)))
    if by == "features":
        return ranker.read_features(list(chain.from_iterable(rows)))
    if by == "history":
        histories = [as_rows(each) for each in chain.from_iterable(rows)]
        return _in_order(histories, len(ranker.candidates))
    return as_rows(list(chain.from_iterable(rows)))


def _allowed(ranker: Ranker, spec: SearchSpec) -> Tensor | None:
    """The rows that a spec allows, ascending; None: all."""
    listed = None if spec.allow is None else _known(ranker.candidates, spec.allow)
    if spec.where is None:
        return listed
    meeting = ranker.conditions.rows(spec.where)
    return meeting if listed is None else meeting[torch.isin(meeting, listed)]


def _excluded(keys: Vocabulary, specs: Sequence[SearchSpec]) -> Interactions | None:
    """What each list may not have because its spec says so."""
    if not any(spec.exclude for spec in specs):
        return None
    lists: list[Tensor] = []
    for spec in specs:
        lists += [_known(keys, spec.exclude)] * len(spec.inputs)
    return _as_pairs(lists, len(keys))


def _as_pairs(lists: Sequence[Tensor], n_candidates: int) -> Interactions:
    """Rows of candidates, ascending in each list."""
    counts = as_rows([len(each) for each in lists])
    rows = torch.repeat_interleave(counts)
    every = torch.cat([torch.empty(0, dtype=torch.int64), *lists])
    return from_pairs(rows, every, None, (len(lists), n_candidates))


def _in_order(histories: Sequence[Tensor], n_candidates: int) -> Interactions:
    """Histories as pairs; their places are the times. A repeated candidate has its last place."""
    counts = as_rows([len(each) for each in histories])
    rows = torch.repeat_interleave(counts)
    ids = torch.cat([torch.empty(0, dtype=torch.int64), *histories])
    codes, order = (rows * n_candidates + ids).sort(stable=True)
    last = torch.ones(len(codes), dtype=torch.bool)
    last[:-1] = codes[1:] != codes[:-1]
    kept = order[last]
    shape = len(histories), n_candidates
    return from_pairs(rows[kept], ids[kept], None, shape, kept.double())


# ---------------------------------------------------------------------------------- rows -> keys


def _in_keys(
    candidates: Vocabulary,
    ids: NDArray[np.int64],
    scores: NDArray[np.float32],
    inputs: Sequence[Any],
) -> Ranking:
    """Lists in keys, and the texts beside them."""
    held = ids >= 0
    lengths, rows = held.sum(axis=1).tolist(), ids[held].tolist()
    texts = candidates.texts
    beside = None if texts is None else _cut(listed(texts, rows), lengths)
    return Ranking(_cut(listed(candidates.keys, rows), lengths), scores, beside, inputs)


def _cut(flat: Sequence[T], lengths: Iterable[int]) -> list[list[T]]:
    """Consecutive lists of these lengths."""
    remaining = iter(flat)
    return [list(islice(remaining, length)) for length in lengths]
