"""Splits: sizes by the documented rule, assignment by seed or time."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankfold.data.build.pairs import Pairs
from rankfold.data.build.split import (
    TEST,
    TRAIN,
    VALIDATION,
    Assignment,
    ByShares,
    Splitter,
    assign,
    by_last,
    by_query,
    by_ratio,
    by_time,
    default_rule,
    parse,
    parse_shares,
    sizes,
)
from rankfold.errors import UserError


def carve(pairs: Pairs, share: float, draw: ByShares) -> Assignment:
    """Given splits with a validation split that is drawn from train."""
    unused = Splitter(by_last, needs_time=True)
    return assign(pairs, unused, share, rng(), draw)


Times = list[list[int]]
"""The times of each query's pairs."""
TIMES = st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=12), min_size=1, max_size=6)
SHARES = st.tuples(st.integers(1, 20), st.integers(0, 20), st.integers(0, 20)).map(
    lambda parts: tuple(part / sum(parts) for part in parts)
)


def pairs_of(times: Times, splits: list[int] | None = None) -> Pairs:
    """Query q has the candidates 0, 1, ... at the times ``times[q]``."""
    counts = [len(row) for row in times]
    return Pairs(
        queries=np.repeat(np.arange(len(times)), counts),
        candidates=np.concatenate([np.arange(n) for n in counts]),
        grades=None,
        times=np.concatenate([np.array(row, dtype=float) for row in times]),
        order=np.arange(sum(counts)),
        splits=None if splits is None else np.array(splits, dtype=np.uint8),
    )


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def of_query(pairs: Pairs, splits: np.ndarray, query: int) -> Counter[int]:
    return Counter(splits[pairs.queries == query].tolist())


def size_by_rule(n: int, validation: float, test: float) -> tuple[int, int]:
    """Test: max(1, round(share n)) if n >= 3; then validation if n >= 5; train keeps one."""
    n_test = min(max(1, round(test * n)), n - 1) if n >= 3 and test else 0
    n_validation = (
        min(max(1, round(validation * n)), n - 1 - n_test) if n >= 5 and validation else 0
    )
    return n_validation, n_test


# ---------------------------------------------------------------------------------- at random


@given(st.integers(1, 300), SHARES)
def test_sizes_follow_the_rule(n: int, shares: tuple[float, float, float]) -> None:
    validation, test = sizes(np.array([n]), shares[1], shares[2])
    assert (validation[0], test[0]) == size_by_rule(n, shares[1], shares[2])


def test_halves_are_rounded_to_even_as_python_does() -> None:
    counts = np.array([1, 2, 3, 4, 5, 15, 25, 35])
    validation, test = sizes(counts, 0.1, 0.1)
    assert test.tolist() == [0, 0, 1, 1, 1, 2, 2, 4]
    assert validation.tolist() == [0, 0, 0, 0, 1, 2, 2, 4]


def test_train_keeps_one_pair_even_if_the_shares_leave_none() -> None:
    validation, test = sizes(np.array([3, 5, 6]), 0.49, 0.49)
    assert (validation.tolist(), test.tolist()) == ([0, 2, 2], [1, 2, 3])


@given(TIMES, SHARES, st.integers(0, 5))
def test_each_query_is_split_by_the_rule(
    times: Times, shares: tuple[float, float, float], seed: int
) -> None:
    pairs = pairs_of(times)
    splits = by_ratio(pairs, shares, rng(seed))
    for query, row in enumerate(times):
        n_validation, n_test = size_by_rule(len(row), shares[1], shares[2])
        result = of_query(pairs, splits, query)
        assert (result[VALIDATION], result[TEST]) == (n_validation, n_test)
        assert result[TRAIN] == len(row) - n_validation - n_test >= 1


def test_the_seed_determines_the_split() -> None:
    pairs = pairs_of([list(range(50))] * 20)
    splits = [by_ratio(pairs, (0.8, 0.1, 0.1), rng(seed)) for seed in (0, 0, 1)]
    assert np.array_equal(splits[0], splits[1])
    assert not np.array_equal(splits[0], splits[2])


def test_every_place_of_a_query_is_tested_equally_often() -> None:
    pairs = pairs_of([[0] * 10] * 4000)
    splits = by_ratio(pairs, (0.7, 0.1, 0.2), rng()).reshape(4000, 10)
    for split, share in ((TEST, 0.2), (VALIDATION, 0.1)):
        spread = np.sqrt(share * (1 - share) / 4000)
        assert np.abs((splits == split).mean(axis=0) - share).max() < 5 * spread


# ---------------------------------------------------------------------------------- by time


@given(TIMES)
def test_last_pairs_are_tested(times: Times) -> None:
    pairs = pairs_of(times)
    splits = by_last(pairs, rng())
    for query, row in enumerate(times):
        mine = splits[pairs.queries == query]
        result = Counter(mine.tolist())
        assert result[TEST] == (len(row) >= 3)
        assert result[VALIDATION] == (len(row) >= 5)
        by_split = [[t for t, s in zip(row, mine, strict=True) if s == split] for split in range(3)]
        ordered = [max(part) for part in by_split if part], [min(part) for part in by_split if part]
        assert all(a <= b for a, b in zip(ordered[0], ordered[1][1:], strict=False))


@given(TIMES, st.integers(1, 6), st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.9]))
def test_time_splits_before_and_after_the_cut(times: Times, cut: int, share: float) -> None:
    flat = [time for row in times for time in row]
    pairs = pairs_of(times)
    if min(flat) >= cut or max(flat) < cut:
        with pytest.raises(UserError, match=f"time:{cut} leaves"):
            by_time(pairs, cut, share)
        return
    splits = by_time(pairs, cut, share)
    at = {split: [t for t, s in zip(flat, splits, strict=True) if s == split] for split in range(3)}
    earlier = sorted(at[TRAIN] + at[VALIDATION])
    assert min(at[TEST]) >= cut > max(earlier)
    assert at[TRAIN]
    if at[VALIDATION]:
        assert max(at[TRAIN]) < min(at[VALIDATION])
    wanted = round(share * len(earlier))
    if len(set(earlier)) == len(earlier) > wanted:
        assert len(at[VALIDATION]) == wanted
    elif wanted and len(set(earlier)) > 1:
        assert at[VALIDATION]


def test_equal_times_all_go_to_train() -> None:
    splits = by_time(pairs_of([[5, 5, 5, 5, 9]]), 9, 0.5)
    assert splits.tolist() == [TRAIN] * 4 + [TEST]


def test_cut_outside_of_the_times_is_refused_with_their_span() -> None:
    pairs = pairs_of([[3, 8]])
    for cut, empty in ((3, "train"), (9, "test")):
        with pytest.raises(UserError, match=f"time:{cut} leaves {empty} empty") as error:
            by_time(pairs, cut, 0.1)
        assert error.value.hint == "the times run from 3 to 8; choose a cut between them"


def test_split_by_time_needs_times() -> None:
    pairs = pairs_of([[1, 2, 3]])
    without = Pairs(pairs.queries, pairs.candidates, None, None, pairs.order, None)
    for rule in ("last", "time:2"):
        splitter = parse(rule, 0.1)
        assert splitter.needs_time
        with pytest.raises(UserError, match="needs the time of each pair"):
            splitter.assign(without, rng())


# ---------------------------------------------------------------------------------- given splits


@given(TIMES, st.data(), st.sampled_from([0.1, 0.25, 0.5]))
def test_validation_is_carved_from_train_only(
    times: Times, data: st.DataObject, share: float
) -> None:
    total = sum(map(len, times))
    given_splits = data.draw(st.lists(st.sampled_from([0, 0, 2]), min_size=total, max_size=total))
    given_splits[0] = TRAIN
    pairs = pairs_of(times, given_splits)
    splits = carve(pairs, share, by_ratio)
    assert ((splits == TEST) == (np.array(given_splits) == TEST)).all()
    for query in range(len(times)):
        before = of_query(pairs, np.array(given_splits), query)[TRAIN]
        after = of_query(pairs, splits, query)
        assert after[VALIDATION] == (size_by_rule(before, share, 0.0)[0] if before else 0)
        assert after[TRAIN] == before - after[VALIDATION]


# ---------------------------------------------------------------------------------- rules in words


@pytest.mark.parametrize("rule", ["0.8,0.1,0.1", (0.8, 0.1, 0.1), [0.8, 0.1, 0.1], "0.8, .1, 1e-1"])
def test_shares_are_written_in_several_ways(rule: str | list[float]) -> None:
    splitter = parse(rule, 0.5)
    pairs = pairs_of([list(range(10))] * 3)
    assert not splitter.needs_time
    assert np.array_equal(splitter.assign(pairs, rng()), by_ratio(pairs, (0.8, 0.1, 0.1), rng()))


@pytest.mark.parametrize(
    "rule", ["time:3", "time:1970-01-01T00:00:03", "time:1970-01-01 02:00:03+02:00"]
)
def test_cut_is_a_number_or_a_date(rule: str) -> None:
    pairs = pairs_of([[1, 2, 3, 4]])
    assert parse(rule, 0.5).assign(pairs, rng()).tolist() == [TRAIN, VALIDATION, TEST, TEST]


@pytest.mark.parametrize(
    "rule",
    ["0.8,0.2", "1,0,0,0", "0.5,0.5,0.5", "-0.1,0.6,0.5", "0,0.5,0.5", "nan,0.5,0.5", "0.5,nan,0.5",
     "inf,0,0", "a,b,c", "first", "", "time:", "time:soon", (1.0,), (0.5, 0.4, 0.2)],
)  # fmt: skip
def test_other_rules_are_refused(rule: str | tuple[float, ...]) -> None:
    with pytest.raises(UserError) as error:
        parse(rule, 0.1)
    assert error.value.hint.startswith("write --split 0.8,0.1,0.1")


@pytest.mark.parametrize("rule", ["0.8,0.2", "a,b,c", (1.0,), "last", "time:3", "queries:1,0,0"])
def test_parse_shares_has_its_own_hint(rule: str | tuple[float, ...]) -> None:
    with pytest.raises(UserError, match="split") as error:
        parse_shares(rule, "write shares")
    assert error.value.hint == "write shares"
    pairs = pairs_of([list(range(10))] * 3)
    shares = parse_shares("0.8,0.1,0.1", "").assign(pairs, rng())
    assert np.array_equal(shares, by_ratio(pairs, (0.8, 0.1, 0.1), rng()))


# ---------------------------------------------------------------------------------- whole queries


@given(TIMES, SHARES)
def test_queries_stay_whole(times: Times, shares: tuple[float, ...]) -> None:
    pairs = pairs_of(times)
    splits = by_query(pairs, shares, rng())
    kinds = [of_query(pairs, splits, query) for query in range(len(times))]
    assert all(len(kind) == 1 for kind in kinds)
    result = Counter(next(iter(kind)) for kind in kinds)
    assert (result[VALIDATION], result[TEST]) == size_by_rule(len(times), shares[1], shares[2])


def test_whole_queries_follow_the_seed() -> None:
    pairs = pairs_of([[0, 1]] * 50)
    rule = parse(default_rule(by_queries=True), 0.0)
    first = rule.assign(pairs, rng(1))
    assert (first == rule.assign(pairs, rng(1))).all()
    assert (first != rule.assign(pairs, rng(2))).any()
    assert Counter(first.tolist()) == {TRAIN: 80, VALIDATION: 10, TEST: 10}


def test_carved_queries_leave_the_test_alone() -> None:
    given = [TRAIN] * 40 + [TEST] * 10
    pairs = pairs_of([[0, 1]] * 25, given)
    splits = carve(pairs, 0.1, by_query)
    assert (splits[40:] == TEST).all()
    assert Counter(splits[:40].tolist()) == {TRAIN: 36, VALIDATION: 4}
    assert all(len(of_query(pairs, splits, query)) == 1 for query in range(25))


@pytest.mark.parametrize("rule", ["queries:", "queries:0.8,0.1", "queries:a,b,c", "queries:1,1,1"])
def test_bad_shares_of_queries_are_refused(rule: str) -> None:
    with pytest.raises(UserError, match="split"):
        parse(rule, 0.1)


def test_numbers_of_held_out_queries() -> None:
    pairs = pairs_of([[0, 0]] * 10)
    splits = parse("queries:3,2", 0.0).assign(pairs, rng())
    assert sorted(Counter(splits[::2].tolist()).items()) == [(TRAIN, 5), (VALIDATION, 3), (TEST, 2)]
    assert (splits[::2] == splits[1::2]).all()


def test_holding_out_all_queries_is_refused() -> None:
    with pytest.raises(UserError, match="cannot hold out 3 and 2 of 5 queries"):
        parse("queries:3,2", 0.0).assign(pairs_of([[0, 0]] * 5), rng())
