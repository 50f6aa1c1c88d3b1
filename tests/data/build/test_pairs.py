"""Numbering and filters of pairs, compared with plain loops."""

from collections import Counter
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankfold.data.build.pairs import (
    Pairs,
    at_least,
    compact,
    core,
    highest,
    last,
    number,
    positive,
)


def pairs_of(frame: dict[str, Any]) -> Pairs:
    types = {"grade": pl.Float32, "time": pl.Float64, "split": pl.UInt8}
    return number(pl.LazyFrame(frame).cast({n: t for n, t in types.items() if n in frame}))[0]


def listed(pairs: Pairs) -> list[tuple[int, int]]:
    return list(zip(pairs.queries.tolist(), pairs.candidates.tolist(), strict=True))


# ---------------------------------------------------------------------------------- numbering


KEYS = st.sampled_from(["b", "a", "é", "Z", "10", "9", "007", ""])
NUMBERS = st.integers(-15, 15)


@given(st.lists(st.tuples(KEYS, NUMBERS)))
def test_rows_follow_the_order_of_keys(rows: list[tuple[str, int]]) -> None:
    rows = [*rows, ("x", 0)]  # so that not all keys are integers
    frame = pl.LazyFrame(rows, schema=["query", "candidate"], orient="row")
    pairs, queries, candidates = number(frame)
    assert queries.to_list() == sorted({query for query, _ in rows})
    assert candidates.to_list() == sorted({candidate for _, candidate in rows})
    keys = [(queries[q], candidates[c]) for q, c in listed(pairs)]
    assert keys == sorted(rows)
    assert [rows[place] for place in pairs.order] == keys


def test_no_row_of_many_is_lost_or_moved() -> None:
    n = 200_000
    queries = np.random.default_rng(0).integers(0, 1000, n)
    pairs = number(pl.LazyFrame({"query": queries, "candidate": queries % 7}))[0]
    assert np.array_equal(np.sort(pairs.order), np.arange(n))
    assert np.array_equal(queries[pairs.order], pairs.queries)
    assert np.array_equal(pairs.queries % 7, pairs.candidates)
    assert (np.diff(pairs.queries) >= 0).all()


@pytest.mark.parametrize(
    "keys",
    [
        ["0", "7", "-7", "10"],
        ["9223372036854775807", "-9223372036854775808"],
    ],
)
def test_canonical_integers_are_integers(keys: list[str]) -> None:
    result = number(pl.LazyFrame({"query": keys, "candidate": ["x"] * len(keys)}))[1]
    assert result.dtype == pl.Int64
    assert result.to_list() == sorted(map(int, keys))


@pytest.mark.parametrize(
    "key", ["007", "+7", "-0", "00", " 7", "7 ", "7.0", "1e3", "x", "7\n", "\u0667",
            "9223372036854775808", "-9223372036854775809", str(10**30), "1,000"],
)  # fmt: skip
def test_one_other_key_makes_its_side_text(key: str) -> None:
    frame = pl.LazyFrame({"query": ["5", key, "10"], "candidate": ["5", "7", "10"]})
    _, queries, candidates = number(frame)
    assert queries.to_list() == sorted(["5", key, "10"])
    assert candidates.to_list() == [5, 7, 10]


def test_columns_stay_with_their_pairs() -> None:
    rows = {"query": ["b", "a"], "candidate": [1, 2], "grade": [5, 3], "time": [1, 2]}
    pairs = pairs_of({**rows, "split": [2, 0]})
    assert pairs.grades is not None
    assert pairs.times is not None
    assert pairs.splits is not None
    assert pairs.grades.tolist() == [3, 5]
    assert pairs.times.tolist() == [2, 1]
    assert pairs.splits.tolist() == [0, 2]
    assert pairs.order.tolist() == [1, 0]
    assert (pairs.grades.dtype, pairs.times.dtype) == (np.float32, np.float64)


def test_no_rows_give_no_pairs() -> None:
    schema = {"query": pl.String, "candidate": pl.Int64, "grade": pl.Float32}
    pairs, queries, candidates = number(pl.LazyFrame(schema=schema))
    assert (len(pairs), len(queries), len(candidates)) == (0, 0, 0)


# ---------------------------------------------------------------------------------- repeated pairs


Row = tuple[int, int, float, float, int]
"""Query, candidate, grade, time, split."""
ROWS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 2),
        st.sampled_from([0.0, 1.0, 2.0]),
        st.sampled_from([10.0, 20.0]),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=20,
)


def one_of_each(rows: list[Row], best: Any) -> list[Row]:
    """The greatest of each group of equal pairs by ``best(place in the input, row)``."""
    groups: dict[tuple[int, int], list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault(row[:2], []).append(place)
    chosen = (max(places, key=lambda p: best(p, rows[p])) for places in groups.values())
    return sorted(rows[place] for place in chosen)


def kept(pairs: Pairs, rows: list[Row]) -> list[Row]:
    return [rows[place] for place in pairs.order]


def columns(rows: list[Row], names: str) -> dict[str, Any]:
    every = dict(
        zip(("query", "candidate", "grade", "time", "split"), zip(*rows, strict=True), strict=True)
    )
    return {name: list(every[name]) for name in names.split()}


@given(ROWS)
def test_highest_grade_stays_then_the_latest_then_the_last(rows: list[Row]) -> None:
    pairs = highest(pairs_of(columns(rows, "query candidate grade time")))
    expected = one_of_each(rows, lambda place, row: (row[2], row[3], place))
    assert kept(pairs, rows) == expected


@given(ROWS)
def test_last_is_by_time_if_there_is_one(rows: list[Row]) -> None:
    pairs = last(pairs_of(columns(rows, "query candidate grade time")))
    assert kept(pairs, rows) == one_of_each(rows, lambda place, row: (row[3], row[2], place))


@given(ROWS)
def test_last_is_by_order_without_times(rows: list[Row]) -> None:
    pairs = last(pairs_of(columns(rows, "query candidate grade")))
    assert kept(pairs, rows) == one_of_each(rows, lambda place, _: place)


@given(ROWS)
def test_pair_in_several_splits_stays_in_the_earliest(rows: list[Row]) -> None:
    pairs = highest(pairs_of(columns(rows, "query candidate grade split")))
    assert kept(pairs, rows) == one_of_each(rows, lambda place, row: (-row[4], row[2], place))
    pairs = last(pairs_of(columns(rows, "query candidate split")))
    assert kept(pairs, rows) == one_of_each(rows, lambda place, row: (-row[4], place))


@given(ROWS)
def test_pairs_stay_sorted_and_without_repeats(rows: list[Row]) -> None:
    for keep in (highest, last):
        result = listed(keep(pairs_of(columns(rows, "query candidate"))))
        assert result == sorted(set(result))


# ---------------------------------------------------------------------------------- grades, core


@given(ROWS, st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0, 9.0]))
def test_grades_are_compared_with_the_lowest_and_with_zero(rows: list[Row], low: float) -> None:
    pairs = pairs_of(columns(rows, "query candidate grade"))
    assert sorted(at_least(pairs, low).order) == [i for i, row in enumerate(rows) if row[2] >= low]
    assert sorted(positive(pairs).order) == [i for i, row in enumerate(rows) if row[2] > 0]


def test_pairs_without_grades_are_all_positive() -> None:
    pairs = pairs_of({"query": [1, 2], "candidate": [1, 2]})
    assert len(positive(pairs)) == 2
    assert len(at_least(pairs, 5.0)) == 2


PAIRS = st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=30)


def core_by_loop(pairs: set[tuple[int, int]], k: int) -> set[tuple[int, int]]:
    """Remove one query or candidate at a time."""
    while True:
        for side in (0, 1):
            counts = Counter(pair[side] for pair in pairs)
            few = next((key for key, n in counts.items() if n < k), None)
            if few is not None:
                pairs = {pair for pair in pairs if pair[side] != few}
                break
        else:
            return pairs


@given(PAIRS, st.integers(0, 4))
def test_core_is_the_fixed_point(rows: set[tuple[int, int]], k: int) -> None:
    queries, candidates = zip(*rows, strict=True)
    frame = pl.LazyFrame({"query": queries, "candidate": candidates})
    pairs, query_keys, candidate_keys = number(frame)
    result = [(query_keys[q], candidate_keys[c]) for q, c in listed(core(pairs, k))]
    assert result == sorted(core_by_loop(rows, k))


def test_core_takes_as_many_rounds_as_it_needs() -> None:
    chain = [(i, i) for i in range(30)] + [(i, i + 1) for i in range(30)]
    queries, candidates = zip(*chain, strict=True)
    assert len(core(pairs_of({"query": queries, "candidate": candidates}), 2)) == 0


@given(PAIRS, st.data())
def test_compact_renumbers_the_remaining_keys(
    rows: set[tuple[int, int]], data: st.DataObject
) -> None:
    queries, candidates = zip(*rows, strict=True)
    pairs, query_keys, candidate_keys = number(
        pl.LazyFrame({"query": queries, "candidate": candidates})
    )
    keep = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))))
    left = pairs.take(keep)
    expected = [(query_keys[q], candidate_keys[c]) for q, c in listed(left)]
    packed, query_keys, candidate_keys = compact(left, query_keys, candidate_keys)
    assert [(query_keys[q], candidate_keys[c]) for q, c in listed(packed)] == expected
    assert query_keys.to_list() == sorted({query for query, _ in expected})
    assert candidate_keys.to_list() == sorted({candidate for _, candidate in expected})
