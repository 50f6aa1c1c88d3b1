"""Re-ranking: pins, boosts, quotas and diversity change the order of scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rankfold.config import Settings, check, setting
from rankfold.data.read.columns import listing
from rankfold.errors import UserError
from rankfold.models.search import Filter
from rankfold.types import Key, TopK

if TYPE_CHECKING:
    from rankfold.models.ranker import Ranker

_POOL, _FACTOR = 100, 10  # a list is chosen from this many candidates, at least 10 k
_MAX_BOOST = 1e30  # a sum of boosts must fit in single precision
_MAX_AMOUNTS = 32  # different sums of boosts, each of them a search
_BLOCK_NUMBERS = 2**24  # of the vectors of lists, at a time

Find = Callable[[int, Filter, bool], TopK]
"""The best candidates by score: how many, after which filter, and whether seen ones count."""


class Rules(Settings):
    """How lists depart from the order of scores. By default they do not."""

    pin: Sequence[Key] = ()  # come first, in this order, even if seen; unknown ones are ignored
    boost: Mapping[str, float] = field(default_factory=dict)  # added where a condition is met
    at_most: Mapping[str, int] = field(default_factory=dict)  # results per value of a feature
    diversity: float = setting(
        0.0, at_least=0, at_most=1, help="0: by score; towards 1: results that differ more"
    )

    def __post_init__(self) -> None:
        check(self)
        for condition, amount in self.boost.items():
            if not abs(amount) <= _MAX_BOOST:
                raise UserError(
                    f"`boost` of {condition!r} must be from -1e30 to 1e30, got {amount}",
                    hint="an amount is added to scores",
                )
        for name, most in self.at_most.items():
            if most < 1:
                raise UserError(f"`at_most` of {name!r} must be at least 1, got {most}")

    def __bool__(self) -> bool:
        return bool(self.pin or self.boost or self.at_most or self.diversity)


NO_RULES = Rules()


def by_rules(
    ranker: Ranker, find: Find, k: int, filter: Filter, rules: Rules, *, include_seen: bool
) -> TopK:
    """The lists of a search, changed by the rules.

    Boosts are exact: they are added to the scores of all candidates. Quotas and diversity choose
    from the best candidates, ten times as many as are returned and at least 100. Pinned candidates
    come first and count towards quotas. Scores are those of the model, with boosts.
    """
    chooses = bool(rules.at_most) or rules.diversity > 0
    depth = pool_size(k) if chooses else k + len(rules.pin)
    amounts = _amounts(ranker, rules.boost)
    top = _boosted(find, depth, filter, amounts, include_seen=include_seen)
    n_pinned = 0
    if rules.pin:
        rows = ranker.candidates.find(list(rules.pin))
        top, n_pinned = _pinned(find, top, rows[rows >= 0], filter, amounts)
    if not chooses:
        return top.first(k)
    return choose(ranker, top, k, rules, n_pinned)


def choose(ranker: Ranker, top: TopK, k: int, rules: Rules, n_pinned: int = 0) -> TopK:
    """Of each list the k candidates that quotas and diversity choose; the pinned ones stay."""
    labels = [_labels(ranker, name) for name in rules.at_most]
    width = ranker.searcher.directions.shape[1] if rules.diversity > 0 else 1
    block = max(1, _BLOCK_NUMBERS // (width * max(1, top.ids.shape[1])))
    parts = [
        _chosen(ranker, TopK(ids, scores), k, n_pinned, labels, rules)
        for ids, scores in zip(top.ids.split(block), top.scores.split(block), strict=True)
    ]
    ids, scores = zip(*parts, strict=True)
    return TopK(torch.cat(ids), torch.cat(scores))


def pool_size(k: int) -> int:
    """How many candidates quotas and diversity choose from."""
    return max(_POOL, _FACTOR * k)


# ---------------------------------------------------------------------------------- boosts


def _amounts(ranker: Ranker, boost: Mapping[str, float]) -> Tensor | None:
    """What is added to the score of each candidate, [N]; None: nothing."""
    if not boost:
        return None
    amounts = torch.zeros(len(ranker.candidates), dtype=torch.float64)
    for condition, amount in boost.items():
        amounts[ranker.conditions.rows(condition)] += amount
    return amounts


def _boosted(
    find: Find, depth: int, filter: Filter, amounts: Tensor | None, *, include_seen: bool
) -> TopK:
    """The best of each group of candidates with an equal amount, then the best of all."""
    if amounts is None:
        return find(depth, filter, include_seen)
    values = amounts.unique()
    if len(values) > _MAX_AMOUNTS:
        raise UserError(
            f"`boost` makes {len(values)} different sums; at most {_MAX_AMOUNTS} are allowed",
            hint="use fewer conditions",
        )
    parts = []
    for value in values:
        allow = (amounts == value).nonzero().flatten()
        if filter.allow is not None:
            allow = allow[torch.isin(allow, filter.allow)]
        top = find(depth, Filter(filter.exclude, allow), include_seen)
        parts.append(TopK(top.ids, top.scores + value.to(top.scores)))
    ids, scores = zip(*parts, strict=True)
    return _sorted(torch.cat(ids, dim=1), torch.cat(scores, dim=1)).first(depth)


def _sorted(ids: Tensor, scores: Tensor) -> TopK:
    """By score; equal scores by id, and pads last."""
    by_id = torch.where(ids < 0, torch.iinfo(ids.dtype).max, ids).argsort(dim=1)
    ids, scores = ids.gather(1, by_id), scores.gather(1, by_id)
    order = scores.argsort(dim=1, descending=True, stable=True)
    return TopK(ids.gather(1, order), scores.gather(1, order))


# ---------------------------------------------------------------------------------- pins


def _pinned(
    find: Find, top: TopK, rows: Tensor, filter: Filter, amounts: Tensor | None
) -> tuple[TopK, int]:
    """The pinned candidates with their scores, then the others; and the number of the former."""
    allow = rows.unique()
    own = find(len(allow), Filter(filter.exclude, allow), True)
    order = torch.full((int(allow.max()) + 2,) if len(allow) else (1,), len(rows))
    order[rows.flip(0)] = torch.arange(len(rows)).flip(0)  # of a repeated pin, the first place
    places = torch.where(own.ids < 0, len(rows), order[own.ids]).argsort(dim=1, stable=True)
    ids, scores = own.ids.gather(1, places), own.scores.gather(1, places)
    if amounts is not None:
        scores = scores + amounts[ids.clamp(min=0)].to(scores)
    others = ~torch.isin(top.ids, allow)
    rest = others.to(torch.int8).argsort(dim=1, descending=True, stable=True)
    kept = others.gather(1, rest)
    rest_ids = top.ids.gather(1, rest).masked_fill(~kept, -1)
    rest_scores = top.scores.gather(1, rest).masked_fill(~kept, -torch.inf)
    both = TopK(torch.cat([ids, rest_ids], 1), torch.cat([scores, rest_scores], 1))
    return _packed(both), ids.shape[1]


def _packed(top: TopK) -> TopK:
    """The same with pads last."""
    order = (top.ids < 0).to(torch.int8).argsort(dim=1, stable=True)
    return TopK(top.ids.gather(1, order), top.scores.gather(1, order))


# ---------------------------------------------------------------------------------- choice


def _labels(ranker: Ranker, name: str) -> Tensor:
    """A number for the value of a feature of each candidate; all missing values share one."""
    table = ranker.conditions.table
    if name not in table.columns:
        raise UserError(f"there is no feature {name!r}", hint=listing(table.columns))
    return torch.from_numpy(table[name].rank("dense").fill_null(0).to_numpy().copy()).long()


def _chosen(
    ranker: Ranker, top: TopK, k: int, n_pinned: int, labels: Sequence[Tensor], rules: Rules
) -> TopK:
    """Choose one candidate after another: maximal marginal relevance, [carbonell1998], in quotas.

    With scores scaled to [0, 1] in each list and cosines of vectors, the next candidate has the
    largest (1 - diversity) score - diversity (largest cosine to a chosen one).
    """
    ids, valid = top.ids, top.ids >= 0
    rows = ids.clamp(min=0)
    relevance = _relevance(top.scores.double(), valid)
    similar = torch.zeros_like(relevance)
    vectors = None
    if rules.diversity > 0:
        vectors = ranker.searcher.directions[rows].to(relevance.device, torch.float64)
        similar -= 1.0
    taken, full = torch.zeros_like(valid), torch.zeros_like(valid)
    values = [of[rows] for of in labels]
    chosen = []
    for step in range(min(k, ids.shape[1])):
        gain = (1 - rules.diversity) * relevance - rules.diversity * similar
        gain = gain.masked_fill(taken | full | ~valid, -torch.inf)
        place = gain.argmax(dim=1, keepdim=True)
        if step < n_pinned:
            pinned = valid[:, step : step + 1]
            place = torch.where(pinned, torch.full_like(place, step), place)
        else:
            pinned = torch.zeros_like(place, dtype=torch.bool)
        good = pinned | (gain.gather(1, place) > -torch.inf)
        chosen.append(torch.where(good, place, -1))
        taken = taken.scatter(1, place, taken.gather(1, place) | good)
        for own, most in zip(values, rules.at_most.values(), strict=True):
            same = own == own.gather(1, place)
            full = full | (same & ((same & taken).sum(dim=1, keepdim=True) >= most) & good)
        if vectors is not None:
            latest = vectors.gather(1, place[:, :, None].expand(-1, -1, vectors.shape[2]))
            similar = torch.maximum(similar, (vectors * latest).sum(dim=2))
    places = torch.cat(chosen, dim=1) if chosen else ids[:, :0]
    none, places = places < 0, places.clamp(min=0)
    chosen_ids = ids.gather(1, places).masked_fill(none, -1)
    return TopK(chosen_ids, top.scores.gather(1, places).masked_fill(none, -torch.inf))


def _relevance(scores: Tensor, valid: Tensor) -> Tensor:
    """Scores from 0 to 1 in each list."""
    low = scores.masked_fill(~valid, torch.inf).amin(dim=1, keepdim=True)
    high = scores.masked_fill(~valid, -torch.inf).amax(dim=1, keepdim=True)
    spread = torch.where(high > low, high - low, 1.0)
    return torch.where(valid, (scores - low) / spread, 0.0)
