"""The split of each pair: train, validation or test.

A splitter assigns a number to each pair: 0 train, 1 validation, 2 test. Of a query with n pairs,
test gets ``max(1, round(share n))`` if n >= 3, then validation the same if n >= 5, and train at
least one. A split by whole queries applies these rules to queries in place of pairs. ``fold_in``
then makes a share of each held-out query's pairs its history (number 3), and judges the others.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankfold.data.build.pairs import Pairs
from rankfold.errors import UserError
from rankfold.types import GIVEN, TEST, TRAIN, VALIDATION

HINT = (
    "write --split 0.8,0.1,0.1 (shares of each query's pairs), queries:0.8,0.1,0.1 (of whole "
    "queries), queries:1000,1000 (numbers of validation and test queries), last, or time:T, where "
    "T is a date like 2024-01-01 or seconds since 1970"
)

QUERIES = "queries:"
_MIN_FOLDED = 5  # pairs of a query that is judged
DEFAULT_SHARES = "0.8,0.1,0.1"

Assignment = NDArray[np.uint8]
ByShares = Callable[[Pairs, Sequence[float], np.random.Generator], Assignment]


class Splitter(NamedTuple):
    """A rule that assigns pairs to splits."""

    assign: Callable[[Pairs, np.random.Generator], Assignment]
    needs_time: bool


def parse(rule: str | Sequence[float], validation_share: float) -> Splitter:
    """The splitter of a rule: three shares, of pairs or of queries, ``last`` or ``time:T``."""
    if isinstance(rule, str):
        if rule == "last":
            return Splitter(by_last, needs_time=True)
        if rule.startswith("time:"):
            cut = _time(rule.removeprefix("time:"))
            return Splitter(lambda pairs, _: by_time(pairs, cut, validation_share), needs_time=True)
        if rule.startswith(QUERIES):
            text = rule.removeprefix(QUERIES)
            numbers = re.fullmatch(r" *(\d+) *, *(\d+) *", text)
            held_out = [*map(int, numbers.groups())] if numbers else _shares(text, HINT)
            return Splitter(lambda pairs, rng: by_query(pairs, held_out, rng), needs_time=False)
    return parse_shares(rule, HINT)


def parse_shares(rule: str | Sequence[float], hint: str) -> Splitter:
    """The splitter by three shares; ``hint`` is for other rules, which are refused."""
    shares = _shares(rule, hint)
    return Splitter(lambda pairs, rng: by_ratio(pairs, shares, rng), needs_time=False)


def default_rule(*, by_queries: bool) -> str:
    """The default shares: of each query's pairs, or of whole queries."""
    return f"{QUERIES}{DEFAULT_SHARES}" if by_queries else DEFAULT_SHARES


def by_ratio(pairs: Pairs, shares: Sequence[float], rng: np.random.Generator) -> Assignment:
    """The pairs of each query at random, by shares of train, validation and test."""
    counts = np.bincount(pairs.queries)
    return _cut(pairs, _shuffled(pairs, rng), *sizes(counts, shares[1], shares[2]))


def by_query(pairs: Pairs, held_out: Sequence[float], rng: np.random.Generator) -> Assignment:
    """Whole queries at random, by three shares or by the numbers for validation and test."""
    queries, rows = np.unique(pairs.queries, return_inverse=True)
    n_validation, n_test = map(int, held_out[-2:])
    if len(held_out) > 2:
        one = np.array([len(queries)])
        n_validation, n_test = (int(size[0]) for size in sizes(one, *held_out[1:]))
    elif n_validation + n_test >= len(queries):
        raise UserError(
            f"cannot hold out {n_validation:,} and {n_test:,} of {len(queries):,} queries",
            hint="some must be left to train on",
        )
    drawn = np.full(len(queries), TRAIN, dtype=np.uint8)
    order = rng.permutation(len(queries))
    drawn[order[:n_test]] = TEST
    drawn[order[n_test : n_test + n_validation]] = VALIDATION
    return drawn[rows]


def by_last(pairs: Pairs, _rng: np.random.Generator) -> Assignment:
    """The latest pair of each query to test, the one before it to validation."""
    counts = np.bincount(pairs.queries)
    latest_first = np.lexsort((-_times(pairs), pairs.queries))
    return _cut(pairs, latest_first, (counts >= 5).astype(int), (counts >= 3).astype(int))


def by_time(pairs: Pairs, cut: float, validation_share: float) -> Assignment:
    """Pairs from the time ``cut`` on to test, the latest share of the others to validation.

    Pairs of the same time stay together: every validation pair is later than all of train.
    """
    times = _times(pairs)
    splits = np.where(times >= cut, TEST, TRAIN).astype(np.uint8)
    earlier = np.sort(times[times < cut])
    if len(earlier) in (0, len(times)):
        span = f"from {times.min():.15g} to {times.max():.15g}"
        raise UserError(
            f"time:{cut:.15g} leaves {'train' if len(earlier) == 0 else 'test'} empty",
            hint=f"the times run {span}; choose a cut between them",
        )
    n_validation = round(validation_share * len(earlier))
    if n_validation:
        begin = earlier[-n_validation]
        later = times > begin if begin == earlier[0] else times >= begin  # leave some to train
        splits[(splits == TRAIN) & later] = VALIDATION
    return splits


def assign(
    pairs: Pairs,
    splitter: Splitter,
    validation_share: float,
    rng: np.random.Generator,
    carve: ByShares = by_ratio,
) -> Assignment:
    """The given splits; without them, those of the splitter.

    If there is no validation among the given ones, a share of train is drawn for it by ``carve``.
    """
    if pairs.splits is None:
        return splitter.assign(pairs, rng)
    if not validation_share or (pairs.splits == VALIDATION).any():
        return pairs.splits
    splits, places = pairs.splits.copy(), np.flatnonzero(pairs.splits == TRAIN)
    splits[places] = carve(pairs.take(places), (1 - validation_share, validation_share, 0.0), rng)
    return splits


def fold_in(pairs: Pairs, share: float, rng: np.random.Generator) -> Pairs:
    """Make a random share of each held-out query's pairs its history; [liang2018].

    Of n pairs, floor((1 - share) n) but at least one keep their split and are judged. A query with
    n < 5 is not judged. Pairs of held-out queries with candidates that train lacks are dropped.
    """
    parts = [np.unique(pairs.queries[pairs.splits == n]) for n in (TRAIN, VALIDATION, TEST)]
    if sum(map(len, parts)) > len(np.unique(pairs.queries)):
        raise UserError(
            "a fold-in needs held-out queries, and some queries are in several splits",
            hint="use --split queries:0.8,0.1,0.1",
        )
    pairs = pairs.take(np.isin(pairs.candidates, pairs.candidates[pairs.splits == TRAIN]))
    assert pairs.splits is not None
    splits, places = pairs.splits.copy(), np.flatnonzero(pairs.splits != TRAIN)
    held_out = pairs.take(places)
    counts = np.bincount(held_out.queries)
    judged = np.maximum(np.floor((1 - share) * counts + 1e-9), 1).astype(np.int64)
    judged[counts < _MIN_FOLDED] = 0
    if not judged.any():
        raise UserError(
            f"no held-out query has {_MIN_FOLDED} pairs, so none can be judged",
            hint="leave --fold-in out, or hold out more queries",
        )
    kept = _cut(held_out, _shuffled(held_out, rng), np.zeros_like(judged), judged) == TEST
    splits[places[~kept]] = GIVEN
    return replace(pairs, splits=splits)


def sizes(
    counts: NDArray[np.int64], validation: float, test: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The numbers of pairs that go to validation and to test, of queries with ``counts`` pairs."""

    def size(share: float, at_least: int, spare: NDArray[np.int64]) -> NDArray[np.int64]:
        wanted = np.maximum(np.rint(share * counts), 1).astype(np.int64)
        wanted = np.minimum(wanted, spare)
        return np.where((counts >= at_least) & (share > 0), wanted, 0)

    n_test = size(test, 3, counts - 1)
    n_validation = size(validation, 5, counts - 1 - n_test)
    return n_validation, n_test


def _shuffled(pairs: Pairs, rng: np.random.Generator) -> NDArray[np.int64]:
    """The places of the pairs by query, in random order within each."""
    noise = rng.integers(0, 2**32, len(pairs))
    return np.argsort((pairs.queries << 32) | noise, kind="stable")


def _cut(
    pairs: Pairs,
    order: NDArray[np.int64],
    n_validation: NDArray[np.int64],
    n_test: NDArray[np.int64],
) -> Assignment:
    """Assign the pairs of each query in ``order``: first test, then validation, then train."""
    counts = np.bincount(pairs.queries)
    starts = np.cumsum(counts) - counts
    query = pairs.queries[order]
    place = np.arange(len(pairs)) - starts[query]
    to_test = place < n_test[query]
    to_validation = ~to_test & (place < (n_test + n_validation)[query])
    splits = np.empty(len(pairs), dtype=np.uint8)
    splits[order] = np.where(to_test, TEST, np.where(to_validation, VALIDATION, TRAIN))
    return splits


def _times(pairs: Pairs) -> NDArray[np.float64]:
    if pairs.times is None:
        raise UserError(
            "a split by time needs the time of each pair",
            hint="name its column: --time-column NAME",
        )
    return pairs.times


def _time(text: str) -> float:
    """Seconds since 1970 from a number or an ISO date."""
    from datetime import UTC, datetime

    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UserError(f"cannot read the time {text!r}", hint=HINT) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _shares(rule: str | Sequence[float], hint: str) -> Sequence[float]:
    """Three shares that add up to 1; else a UserError with the hint."""
    try:
        shares = [float(part) for part in (rule.split(",") if isinstance(rule, str) else rule)]
    except (TypeError, ValueError):
        raise UserError(f"cannot read the split {rule!r}", hint=hint) from None
    good = len(shares) == 3 and min(shares) >= 0 and shares[0] > 0 and abs(sum(shares) - 1) <= 1e-6
    if not good:  # also if one is NaN
        raise UserError(
            f"the split {','.join(f'{s:g}' for s in shares)} is not three shares that add up to 1",
            hint=hint,
        )
    return shares
