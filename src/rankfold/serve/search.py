"""What is asked of a model that ranks, many requests at a time, and the answers as JSON."""

from __future__ import annotations

import difflib
import re
from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from pydantic_core import to_json
from torch import Tensor

from rankfold.models.ranker import Ranker
from rankfold.serve.errors import HttpError
from rankfold.serve.limits import Limits
from rankfold.types import Interactions, Key, TopK, Vocabulary

DEPTHS = (10, 20, 50, 100, 200, 500)  # k is raised to one of them, so that requests share a search
AROUND = 100  # keys before and after an unknown one: among these, some that are like it are sought
LONGEST = 100  # characters of a key that others are compared with


@dataclass(slots=True, eq=False)
class Question:
    """A request to rank."""

    about: str  # queries, history, text or candidates
    asked: list[Any]  # a key, a history or a text for each list that is wanted
    k: int
    exclude: Sequence[Key] = ()
    allow: Sequence[Key] | None = None
    include_seen: bool = False

    @property
    def depth(self) -> int:
        return next((depth for depth in DEPTHS if depth >= self.k), self.k)

    @property
    def group(self) -> Hashable:
        """Those of an equal one share a search. It says all that a list depends on."""
        alone = None if self.allow is None else id(self)
        return self.about, self.depth, self.include_seen, alone


def check_size(question: Question, limits: Limits) -> None:
    """What a request may cost is the product of two things that it may have many of."""
    lists, hint = len(question.asked), "ask in several requests, or for a smaller k"
    if lists * question.k > limits.results:
        told = f"{lists:,} lists of {question.k:,} are more than {limits.results:,} results"
        raise HttpError(400, told, hint)
    if lists * len(question.exclude) > limits.excluded:
        told = f"{lists:,} lists without {len(question.exclude):,} candidates each"
        hint = "ask in several requests, or exclude fewer"
        raise HttpError(400, f"exclude: {told} are more than {limits.excluded:,}", hint)


@torch.inference_mode()
def answer(ranker: Ranker, questions: Sequence[Question]) -> list[bytes | HttpError]:
    """A JSON document for each question of one group, or what is wrong with it."""
    found = _resolved(ranker, questions)
    good = [place for place, rows in enumerate(found) if not isinstance(rows, HttpError)]
    answers: list[Any] = list(found)
    if good:
        documents = _ranked(ranker, [questions[p] for p in good], [found[p] for p in good])
        for place, document in zip(good, documents, strict=True):
            answers[place] = document
    return answers


# ---------------------------------------------------------------------------------- rows


def _resolved(ranker: Ranker, questions: Sequence[Question]) -> list[Any]:
    """What each question is about: rows, a list of rows for each history, texts; or a HttpError."""
    about = questions[0].about
    if about == "text":
        return [question.asked for question in questions]
    if about == "queries":
        return _rows(ranker.queries, [question.asked for question in questions], "query")
    if about == "candidates":
        return _rows(ranker.candidates, [question.asked for question in questions], "candidate")
    flat = [list(chain.from_iterable(question.asked)) for question in questions]
    rows = _rows(ranker.candidates, flat, "candidate")
    return [
        found
        if isinstance(found, HttpError)
        else [part.unique() for part in found.split([len(history) for history in question.asked])]
        for question, found in zip(questions, rows, strict=True)
    ]


def _rows(keys: Vocabulary, lists: Sequence[Sequence[Key]], what: str) -> list[Tensor | HttpError]:
    """The rows of each list; keys like an unknown one are looked for when nobody else waits."""
    found = keys.find(list(chain.from_iterable(lists))).split([len(each) for each in lists])
    near = len(lists) == 1
    return [
        unknown(keys, asked[int((rows < 0).nonzero()[0])], what, near=near)
        if bool((rows < 0).any())
        else rows
        for asked, rows in zip(lists, found, strict=True)
    ]


def unknown(keys: Vocabulary, key: Key, what: str, *, near: bool) -> HttpError:
    """``near``: the hint names keys that are like it."""
    like = _near(keys, str(key)[:LONGEST]) if near else []
    named = f"did you mean {', '.join(map(repr, like))}?" if like else ""
    return HttpError(404, f"unknown {what} {key!r}", named or f"GET /keys?side={what} finds keys")


def _near(keys: Vocabulary, key: str, n: int = 3) -> list[Key]:
    """Keys that look like it among those around its place: few, as the model waits meanwhile."""
    held = keys.keys
    wanted: Key = key
    if keys.holds_integers:
        wanted = int(key) if re.fullmatch(r"-?[0-9]{1,18}", key) else 0
    place = bisect_left(held, wanted)
    around = {str(each): each for each in held.slice(max(0, place - AROUND), 2 * AROUND)}
    containing = [each for each in around if key.lower() in each.lower()]
    like = difflib.get_close_matches(key, around, n=n, cutoff=0.5) or containing[:n]
    return [around[each] for each in like]


# ---------------------------------------------------------------------------------- lists


def _ranked(ranker: Ranker, questions: Sequence[Question], found: Sequence[Any]) -> list[bytes]:
    """One search for all of them, of which each gets its lists."""
    first = questions[0]
    exclude = _excluded(ranker.candidates, questions)
    allow = None if first.allow is None else _known(ranker.candidates, first.allow)
    lists = _SEARCHES[first.about](ranker, questions, found, exclude, allow)
    ids, scores = lists.ids.tolist(), lists.scores.tolist()
    documents, start = [], 0
    for question, rows in zip(questions, found, strict=True):
        stop = start + len(question.asked)
        documents.append(_document(ranker, question, rows, ids[start:stop], scores[start:stop]))
        start = stop
    return documents


def _of_queries(
    ranker: Ranker,
    questions: Sequence[Question],
    found: Sequence[Tensor],
    exclude: Interactions | None,
    allow: Tensor | None,
) -> TopK:
    rows = torch.cat(list(found))
    hidden = ranker.hidden(rows, include_seen=questions[0].include_seen)
    return ranker.searcher.of_queries(rows, questions[0].depth, _union(hidden, exclude), allow)


def _of_histories(
    ranker: Ranker,
    questions: Sequence[Question],
    found: Sequence[Sequence[Tensor]],
    exclude: Interactions | None,
    allow: Tensor | None,
) -> TopK:
    chosen = _listed(list(chain.from_iterable(found)), len(ranker.candidates))
    hidden = None if questions[0].include_seen else chosen
    return ranker.searcher.of_histories(chosen, questions[0].depth, _union(hidden, exclude), allow)


def _of_texts(
    ranker: Ranker,
    questions: Sequence[Question],
    found: Sequence[Sequence[str]],
    exclude: Interactions | None,
    allow: Tensor | None,
) -> TopK:
    tokens = ranker.tokens(list(chain.from_iterable(found)))
    return ranker.searcher.of_texts(tokens, questions[0].depth, exclude, allow)


def _like(
    ranker: Ranker,
    questions: Sequence[Question],
    found: Sequence[Tensor],
    exclude: Interactions | None,
    allow: Tensor | None,
) -> TopK:
    return ranker.searcher.like(torch.cat(list(found)), questions[0].depth, exclude, allow)


_SEARCHES: dict[str, Callable[..., TopK]] = {
    "queries": _of_queries,
    "history": _of_histories,
    "text": _of_texts,
    "candidates": _like,
}


def _known(keys: Vocabulary, wanted: Sequence[Key]) -> Tensor:
    """The rows of what is known of it, ascending, each once."""
    rows: Tensor = keys.find(wanted).unique()
    return rows[rows >= 0]


def _excluded(keys: Vocabulary, questions: Sequence[Question]) -> Interactions | None:
    """What each list may not have, because the question says so."""
    if not any(question.exclude for question in questions):
        return None
    lists: list[Tensor] = []
    for question in questions:
        lists += [_known(keys, question.exclude)] * len(question.asked)
    return _listed(lists, len(keys))


def _listed(lists: Sequence[Tensor], n_candidates: int) -> Interactions:
    """Rows of candidates, ascending in each."""
    offsets = torch.tensor([0, *map(len, lists)]).cumsum(0)
    dtype = torch.int32 if n_candidates < 2**31 else torch.int64
    return Interactions(offsets, torch.cat(list(lists)).to(dtype), None, n_candidates)


def _union(some: Interactions | None, more: Interactions | None) -> Interactions | None:
    if some is None or more is None:
        return some if more is None else more
    return some.union(more)


def _document(
    ranker: Ranker,
    question: Question,
    rows: Any,
    ids: Sequence[Sequence[int]],
    scores: Sequence[Sequence[float]],
) -> bytes:
    """``{"results": [{"query", "candidates": [{"candidate", "score", "text"?}]}]}``."""
    asked = question.asked
    if question.about in ("queries", "candidates"):  # as the model holds them
        keys = ranker.queries if question.about == "queries" else ranker.candidates
        asked = keys_of(keys, rows.tolist())
    results = [
        {"query": query, "candidates": _entries(ranker, mine[: question.k], values)}
        for query, mine, values in zip(asked, ids, scores, strict=True)
    ]
    return to_json({"results": results}, inf_nan_mode="null")


def _entries(ranker: Ranker, ids: Sequence[int], scores: Sequence[float]) -> list[dict[str, Any]]:
    rows = [row for row in ids if row >= 0]  # -1 pads the end
    found = zip(described(ranker.candidates, rows, "candidate"), scores, strict=False)
    return [{**entry, "score": score} for entry, score in found]


def described(keys: Vocabulary, rows: Sequence[int], name: str) -> list[dict[str, Any]]:
    """The key of each row and, where it has one, the text that is shown beside it."""
    found, texts = keys_of(keys, rows), keys.texts
    if texts is None:
        return [{name: key} for key in found]
    return [
        {name: key} if (text := texts[row]) is None else {name: key, "text": text}
        for key, row in zip(found, rows, strict=True)
    ]


def keys_of(keys: Vocabulary, rows: Sequence[int]) -> list[Key]:
    """One by one: for a few rows that takes a fraction of what a gather does."""
    held = keys.keys
    return [held[row] for row in rows]
