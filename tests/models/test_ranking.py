"""A ranking is iterated by query and becomes a table of any library."""

import polars as pl
import pytest

import rankfold as rf
from rankfold.models.ranking import Ranking

PAIRS = (
    ["ann", "ann", "bob", "bob", "cid", "cid", "dot"],
    ["tea", "ink", "tea", "pen", "ink", "jam", "tea"],
)


@pytest.fixture(scope="module")
def ranking() -> Ranking:
    return rf.fit("rg2-plain", PAIRS, width=3, reg=0.01).search(["ann", "dot"], k=10)


def test_iteration_gives_each_query_without_padding(ranking: Ranking) -> None:
    lists = list(ranking)
    assert len(ranking) == 2
    assert [row.query for row in lists] == ["ann", "dot"]
    assert [row.keys for row in lists] == ranking.keys
    assert [len(row.scores) for row in lists] == [2, 3]
    assert all(
        row.scores.tolist() == scores[: len(row.keys)].tolist()
        for row, scores in zip(lists, ranking.scores, strict=True)
    )


def test_tables_have_a_row_per_result(ranking: Ranking) -> None:
    table = ranking.to_polars()
    assert table["query"].to_list() == ["ann"] * 2 + ["dot"] * 3
    assert table["rank"].to_list() == [1, 2, 1, 2, 3]
    assert table["candidate"].to_list() == ranking.keys[0] + ranking.keys[1]
    assert table["score"].is_finite().all()
    assert ranking.to_pandas().to_dict("list") == table.to_dict(as_series=False)
    assert pl.from_arrow(ranking.to_arrow()).equals(table)


def test_a_history_is_its_own_query_and_an_empty_ranking_has_the_same_columns(
    ranking: Ranking,
) -> None:
    model = rf.fit("rg2-plain", PAIRS, width=3, reg=0.01)
    history = model.search(history=["tea"], k=2)
    assert history.to_polars()["query"].to_list() == [["tea"], ["tea"]]
    assert model.search([], k=2).to_polars().columns == ranking.to_polars().columns


def test_it_is_shown_as_lines_and_as_a_table_in_notebooks(ranking: Ranking) -> None:
    head, first, *rest = repr(ranking).splitlines()
    assert head == "<Ranking: 2 lists of up to 4>"
    assert first == f"{ranking[0].query}: {', '.join(map(str, ranking.keys[0]))}"
    assert len(rest) == 1
    assert "candidate" in ranking._repr_html_()
