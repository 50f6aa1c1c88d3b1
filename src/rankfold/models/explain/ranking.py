"""Why a candidate is in a list: which candidates of the history, or words of the text, raise it.

Closed forms score a history by sums over its candidates (``Opened.parts``): their contributions are
exact. Elsewhere a contribution of a candidate is how much the score falls without it. That says
little of a text, whose words say the same thing twice: a contribution of a word is the mean of that
fall and of the word's own score.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from rankfold.errors import UserError
from rankfold.models.search import Filter, ranks_by_text
from rankfold.types import Interactions, Key, Texts, TopK, from_pairs, kept_histories, offsets_of

if TYPE_CHECKING:
    from rankfold.models.ranker import Ranker

CONTRIBUTIONS = 5  # shown by default


class Contribution(NamedTuple):
    """What one candidate of the history, or one word of the text, adds to a score."""

    key: Key
    score: float
    text: str | None = None


class Explanation(NamedTuple):
    """The largest contributions to a score; with ``rest`` they sum to it."""

    contributions: list[Contribution]
    rest: float
    exact: bool  # False: the score is not a sum over the candidates or words

    def to_json(self) -> dict[str, Any]:
        """As an entry of a result."""
        because = [
            {"key": one.key, **({} if one.text is None else {"text": one.text}), "score": one.score}
            for one in self.contributions
        ]
        return {"because": because, "rest": self.rest, "exact": self.exact}

    def __str__(self) -> str:
        return ", ".join(f"{one.text or one.key} {one.score:+.3g}" for one in self.contributions)


def explain(ranker: Ranker, by: str, inputs: Any, top: TopK, most: int) -> list[list[Explanation]]:
    """The ``most`` largest contributions to each score of each list of ``top``.

    ``inputs`` are rows [B] of queries, histories, or texts. A query without information has none.
    """
    if by in ("candidates", "features"):
        what = "similar candidates" if by == "candidates" else "lists by features"
        raise UserError(f"{what} have no explanation", hint="explain a query, a history or a text")
    of_text = ranks_by_text(ranker.model)
    result = []
    for row in range(len(top.ids)):
        ids = top.ids[row][top.ids[row] >= 0]
        scores = top.scores[row][: len(ids)]
        if isinstance(inputs, Texts) or of_text:
            texts = _texts(ranker, inputs, row)
            keys, parts = _words(ranker, texts), _parts_of_words(ranker, texts, ids)
            exact = False
        else:
            history = _history(ranker, inputs, row)
            keys = [Contribution(*one) for one in _named(ranker, history.candidates)]
            parts, exact = _parts(ranker, history, ids, scores)
        result.append(
            [
                _explanation(keys, parts[:, place], float(scores[place]), most, exact=exact)
                for place in range(len(ids))
            ]
        )
    return result


def _explanation(
    keys: Sequence[Contribution], parts: Tensor, score: float, most: int, *, exact: bool
) -> Explanation:
    order = parts.abs().argsort(descending=True, stable=True)[:most].tolist()
    kept = [keys[place]._replace(score=float(parts[place])) for place in order if parts[place] != 0]
    return Explanation(kept, score - sum(one.score for one in kept), exact)


# ---------------------------------------------------------------------------------- histories


def _history(ranker: Ranker, inputs: Any, row: int) -> Interactions:
    """The history of a query: as given, as the model keeps it, or else what is hidden as seen."""
    if isinstance(inputs, Interactions):
        return inputs.part(row, row + 1)
    kept = kept_histories(ranker.model, len(ranker.candidates))
    return (ranker.seen if kept is None else kept).select(inputs[row : row + 1].cpu())


def _named(ranker: Ranker, rows: Tensor) -> list[tuple[Key, float, str | None]]:
    keys, texts = ranker.candidates.keys, ranker.candidates.texts
    return [(keys[row], 0.0, None if texts is None else texts[row]) for row in rows.tolist()]


def _parts(
    ranker: Ranker, history: Interactions, ids: Tensor, scores: Tensor
) -> tuple[Tensor, bool]:
    """The contribution of each candidate of the history to each of ``ids``; whether it is exact."""
    if history.n_pairs == 0:
        return torch.zeros(0, len(ids)), True
    opened = ranker.searcher.opened
    if opened.parts is not None:
        device = next(iter(ranker.model.tensors.values())).device
        return opened.parts(history.to(device), ids.to(device)).cpu(), True
    if opened.histories is None and opened.search_histories is None:
        raise UserError(
            f"{ranker.model.method} cannot explain its results: its queries are not histories",
            hint="fit a method that answers histories, such as rg2, ease or ials",
        )
    if history.n_pairs == 1:
        return scores[None].cpu(), False
    find: Find = ranker.searcher.of_histories
    whole = _scores(partial(find, history), ids)
    return whole - _scores(partial(find, _leave_one_out(history)), ids), False


def _leave_one_out(history: Interactions) -> Interactions:
    """A row for each pair of a history: the others."""
    n = history.n_pairs
    kept = ~torch.eye(n, dtype=torch.bool)
    rows, places = kept.nonzero(as_tuple=True)
    candidates, grades = history.candidates.cpu(), history.grades
    each = None if grades is None else grades.cpu()[places]
    times = None if history.times is None else history.times.cpu()[places]
    return from_pairs(rows, candidates[places], each, (n, history.n_candidates), times)


Find = Callable[[Any, int, Filter], TopK]


def _scores(find: Callable[[int, Filter], TopK], ids: Tensor) -> Tensor:
    """The scores of the candidates ``ids`` [K] for each query that ``find`` ranks for; [B, K]."""
    allowed = ids.cpu().sort().values
    top = find(len(ids), Filter(allow=allowed))
    listed, scores = top.ids.cpu(), top.scores.cpu()
    order = listed.argsort(dim=1)
    ascending = scores.gather(1, order)  # by row number: all of ``ids`` are in every list
    return ascending[:, torch.searchsorted(allowed, ids.cpu())]


# ---------------------------------------------------------------------------------- texts


def _texts(ranker: Ranker, inputs: Any, row: int) -> Texts:
    if isinstance(inputs, Texts):
        return inputs.part(row, row + 1)
    if isinstance(inputs, Tensor) and ranker.texts is not None:
        return ranker.texts.select(inputs[row : row + 1].cpu())
    raise UserError(f"{ranker.model.method} explains texts only", hint="give a text")


def _words(ranker: Ranker, texts: Texts) -> list[Contribution]:
    """The distinct tokens of a text as words."""
    words: dict[int, str] = {}
    if ranker.tokenizer is not None:
        vocabulary = json.loads(ranker.tokenizer)["model"].get("vocab", {})
        items = vocabulary.items() if isinstance(vocabulary, dict) else enumerate(vocabulary)
        for word, token in items:
            if isinstance(token, int):
                words[token] = str(word)
    return [
        Contribution(words.get(token, f"token {token}"), 0.0)
        for token in texts.tokens.unique().tolist()
    ]


def _parts_of_words(ranker: Ranker, texts: Texts, ids: Tensor) -> Tensor:
    """The contribution of each distinct token of one text to each score; [tokens, K].

    With s the score of a text T::

        part_w = (s(T) - s(T without w) + s(w)) / 2
    """
    distinct = texts.tokens.unique()
    if len(distinct) == 0:
        return torch.zeros(0, len(ids))
    find: Find = ranker.searcher.of_texts
    whole = _scores(partial(find, texts), ids)
    if len(distinct) == 1:
        return whole
    own = texts.tokens[None, :] == distinct[:, None]
    without, alone = (_scores(partial(find, _cut(texts, kept)), ids) for kept in (~own, own))
    return (whole - without + alone) / 2


def _cut(texts: Texts, kept: Tensor) -> Texts:
    """A text for each row of ``kept`` [n, tokens], with these tokens of one text."""
    offsets = offsets_of(kept.sum(dim=1))
    places = kept.nonzero()[:, 1]
    weights = None if texts.weights is None else texts.weights[places]
    return Texts(offsets, texts.tokens[places], weights)
