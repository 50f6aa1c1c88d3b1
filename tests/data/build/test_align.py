"""Rows of one data set are matched with those of another by key."""

import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankfold.data.build.align import arrange, changed_rows, merge, renumber, rows_of
from rankfold.types import Interactions, Vocabulary, from_pairs


def vocabulary(keys: list[int] | list[str]) -> Vocabulary:
    return Vocabulary(len(keys), lambda: pl.Series(sorted(keys)))


def pairs_of(rows: list[dict[int, float]], n: int) -> Interactions:
    """A CSR with these candidates and grades in its rows."""
    flat = [(q, c, row[c]) for q, row in enumerate(rows) for c in sorted(row)]
    queries, candidates, grades = zip(*flat, strict=True) if flat else ((), (), ())
    numbers = (torch.tensor(column, dtype=torch.int64) for column in (queries, candidates))
    return from_pairs(*numbers, torch.tensor(grades), (len(rows), n))


def rows_in(pairs: Interactions) -> list[dict[int, float]]:
    rows: list[dict[int, float]] = [{} for _ in range(pairs.n_queries)]
    for place, query in enumerate(pairs.query_of_pair().tolist()):
        grade = 1.0 if pairs.grades is None else float(pairs.grades[place])
        rows[query][int(pairs.candidates[place])] = grade
    return rows


some_rows = st.lists(
    st.dictionaries(st.integers(0, 4), st.sampled_from([1.0, 2.0])), min_size=1, max_size=6
)


@given(some_rows, st.data())
def test_arranged_rows_are_the_named_ones(
    rows: list[dict[int, float]], data: st.DataObject
) -> None:
    wanted = data.draw(st.lists(st.integers(-1, len(rows) - 1), max_size=8))
    result = arrange(pairs_of(rows, 5), torch.tensor(wanted, dtype=torch.int64))
    assert rows_in(result) == [{} if row < 0 else rows[row] for row in wanted]


@given(some_rows, st.permutations(range(7)))
def test_renumbered_candidates_keep_their_grades(
    rows: list[dict[int, float]], order: list[int]
) -> None:
    """Five candidates go to five of seven places; the last three places are dropped."""
    result = renumber(pairs_of(rows, 5), torch.tensor(order[:5]), 4)
    assert rows_in(result) == [
        {order[c]: grade for c, grade in row.items() if order[c] < 4} for row in rows
    ]
    assert all(list(row) == sorted(row) for row in rows_in(result))


@given(st.lists(st.tuples(*[st.dictionaries(st.integers(0, 4), st.sampled_from([1.0, 2.0]))] * 2)))
def test_new_rows_have_another_pair_or_grade(
    both: list[tuple[dict[int, float], dict[int, float]]],
) -> None:
    both = [*both, ({}, {0: 1.0})]
    known, more = (pairs_of([row[side] for row in both], 5) for side in (0, 1))
    expected = [q for q, (old, new) in enumerate(both) if not new.items() <= old.items()]
    assert changed_rows(known, more).tolist() == expected


def test_missing_grades_are_ones() -> None:
    graded = pairs_of([{0: 1.0, 2: 1.0}, {0: 2.0}, {1: 1.0}], 3)
    plain = Interactions(graded.offsets, graded.candidates, None, 3)
    assert changed_rows(graded, plain).tolist() == changed_rows(plain, graded).tolist() == [1]
    assert changed_rows(plain, plain).tolist() == []


@pytest.mark.parametrize(
    ("ours", "more", "merged"),
    [
        ([2, 10, 30], [20, 10, 1], [1, 2, 10, 20, 30]),
        (["b", "d"], ["a", "c", "d"], ["a", "b", "c", "d"]),
        ([2, 10], ["2", "x"], ["10", "2", "x"]),  # no longer all integers: sorted as words
        (["2", "x"], [10, 2], ["10", "2", "x"]),
        ([2, 10], ["10"], [2, 10]),
        ([7], ["07"], ["07", "7"]),
    ],
)
def test_merged_keys_are_all_keys_in_order(
    ours: list[int] | list[str], more: list[int] | list[str], merged: list[int] | list[str]
) -> None:
    result = merge(vocabulary(ours), pl.Series(more))
    assert result.keys.to_list() == merged
    assert len(result) == len(merged)


def test_unknown_keys_come_last() -> None:
    ours, theirs = vocabulary(["b", "d"]), vocabulary(["a", "b", "c", "d"])
    assert rows_of(ours, theirs).tolist() == [2, 0, 3, 1]
