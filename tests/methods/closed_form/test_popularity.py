"""Popularity ranks by counts."""

import rankfold as rf

COLUMNS = (
    ["ann", "bob", "cid", "ann", "bob", "cid"],
    ["tea", "tea", "tea", "ink", "ink", "pen"],
)


def test_the_most_chosen_come_first_and_the_seen_are_left_out() -> None:
    ranker = rf.fit("popularity", COLUMNS)
    assert ranker.search(["ann"], include_seen=True).keys == [["tea", "ink", "pen"]]
    assert ranker.search(["ann", "cid"]).keys == [["pen"], ["ink"]]
    assert ranker.search(history=["pen"]).keys == [["tea", "ink"]]


def test_scores_are_counts() -> None:
    ranker = rf.fit("popularity", COLUMNS)
    assert ranker.search(["ann"], include_seen=True).scores.tolist() == [[3.0, 2.0, 1.0]]
