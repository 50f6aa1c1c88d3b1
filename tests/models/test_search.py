"""Search by vectors, by a method's custom search, or else by popularity."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import torch
from rankings import assert_same_ranking
from torch import Tensor

import rankfold as rf
from rankfold.errors import UserError
from rankfold.index.exact import Exact
from rankfold.methods import METHODS
from rankfold.models.search import Filter, Searcher
from rankfold.tasks.predict import predict
from rankfold.types import Dataset, Interactions, Model, Opened, TopK, from_pairs

pytestmark = pytest.mark.usefixtures("extra_methods")

PAIRS = (
    ["ann", "ann", "bob", "bob", "cid", "cid", "dot", "eve", "eve"],
    ["tea", "ink", "tea", "pen", "ink", "jam", "tea", "pen", "jam"],
)


def chosen(rows: list[list[int]], n: int) -> Interactions:
    flat = torch.tensor([(q, c) for q, row in enumerate(rows) for c in row]).reshape(-1, 2)
    return from_pairs(flat[:, 0], flat[:, 1], None, (len(rows), n))


@pytest.fixture
def searcher() -> Searcher:
    """Four queries, two of them without pairs; candidate 3 was chosen most, then 1 and 2."""
    rng = torch.Generator().manual_seed(0)
    queries = torch.randn(4, 3, generator=rng)
    queries[[1, 3]] = 0
    tensors = {"queries": queries, "candidates": torch.randn(5, 3, generator=rng)}
    seen = chosen([[1, 2, 3], [], [0, 3], [1, 2, 3]], 5)
    return Searcher(Model("sums", {}, tensors), seen)


def test_zero_vectors_are_ranked_by_counts(searcher: Searcher) -> None:
    result = searcher.of_queries(torch.tensor([3, 0, 1, 2]), 4)
    tensors = searcher.model.tensors
    plain = Exact(tensors["candidates"]).search(tensors["queries"][[0, 2]], 5)
    assert result.ids[[0, 2]].tolist() == [[3, 1, 2, 0]] * 2  # equal counts by id
    assert result.scores[[0, 2]].tolist() == [[3.0, 2.0, 2.0, 1.0]] * 2
    assert_same_ranking(TopK(result.ids[[1, 3]], result.scores[[1, 3]]), plain)


def test_vectors_from_elsewhere_are_ranked_too(searcher: Searcher) -> None:
    other = Searcher(replace(searcher.model, method="made by hand"), searcher.chosen)
    rows = torch.arange(4)
    assert torch.equal(other.of_queries(rows, 5).ids, searcher.of_queries(rows, 5).ids)


def test_popularity_respects_exclusions(searcher: Searcher) -> None:
    exclude = chosen([[0, 3], [2], [1]], 5)
    result = searcher.of_queries(torch.tensor([1, 3, 0]), 5, Filter(exclude))
    assert result.ids[:2].tolist() == [[1, 2, 4, -1, -1], [3, 1, 0, 4, -1]]
    assert result.scores[0].tolist() == [2.0, 2.0, 0.0, -torch.inf, -torch.inf]
    assert 1 not in result.ids[2].tolist()


def test_histories_and_vectors_give_the_same_ranking(searcher: Searcher) -> None:
    histories = chosen([[0, 2], [], [4]], 5)
    candidates = searcher.model.tensors["candidates"]
    vectors = torch.stack([candidates[0] + candidates[2], torch.zeros(3), candidates[4]])
    by_history, by_vector = searcher.of_histories(histories, 3), searcher.of_vectors(vectors, 5)
    assert_same_ranking(by_history, by_vector)
    assert by_history.ids[1].tolist() == [3, 1, 2]


def test_counts_are_compared_exactly_and_counted_once(
    searcher: Searcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond 2**24 float32 cannot represent every count."""
    counted: list[Interactions] = []

    def count(pairs: Interactions) -> Tensor:
        counted.append(pairs)
        return torch.tensor([2**24, 2**24 + 1, 5, 2**24 + 2, 0])

    monkeypatch.setattr(Interactions, "candidate_counts", count)
    for _ in range(3):
        assert searcher.of_queries(torch.tensor([1]), 4).ids.tolist() == [[3, 1, 0, 2]]
    assert len(counted) == 1


def test_an_empty_history_is_ranked_by_popularity_for_any_method() -> None:
    """Popularity gives every history the same vector, never zeros; counts are of all seen pairs."""
    train, validation = chosen([[0], [0], [1]], 3), chosen([[], [1], [0]], 3)
    names = rf.fit("popularity", (["a", "b", "c"], ["x", "y", "z"]))
    data = Dataset("interactions", train, validation, None, names.queries, names.candidates)
    result = rf.fit("popularity", data).search(history=[])
    assert result.keys == [["x", "y", "z"]]
    assert result.scores.tolist() == [[3.0, 2.0, 0.0]]


def test_a_method_without_fold_in_refuses_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "sums", replace(METHODS["sums"], open=lambda _: Opened()))
    ranker = rf.fit("sums", PAIRS)
    for history in (["tea"], []):
        with pytest.raises(UserError, match="sums cannot be queried by history"):
            ranker.search(history=history)


def test_only_allowed_candidates_are_returned_even_by_popularity(searcher: Searcher) -> None:
    allow, exclude = torch.tensor([1, 2, 4]), chosen([[1], [], [2], []], 5)
    result = searcher.of_queries(torch.arange(4), 5, Filter(exclude, allow))
    assert result.ids[1].tolist() == [1, 2, 4, -1, -1]  # by counts
    assert result.ids[3].tolist() == [1, 2, 4, -1, -1]
    tensors = searcher.model.tensors
    scores = tensors["queries"][0] @ tensors["candidates"].T
    assert result.ids[0].tolist() == [*sorted([2, 4], key=lambda c: -float(scores[c])), -1, -1, -1]
    nothing = Filter(allow=torch.tensor([]).long())
    assert searcher.of_queries(torch.arange(4), 2, nothing).ids.max() == -1


def test_similarity_is_the_cosine_and_computed_once(searcher: Searcher) -> None:
    directions = torch.nn.functional.normalize(searcher.model.tensors["candidates"], dim=1)
    cosines = directions @ directions.T
    filtered = Filter(chosen([[1], []], 5), torch.tensor([0, 1, 2, 3]))
    result = searcher.like(torch.tensor([3, 0]), 2, filtered)
    for row, (query, left) in enumerate(((3, [0, 2]), (0, [1, 2, 3]))):
        right = sorted(left, key=lambda c, query=query: -float(cosines[query, c]))[:2]
        assert result.ids[row].tolist() == right
        torch.testing.assert_close(result.scores[row], cosines[query, right])
    assert searcher.similar is searcher.similar


@pytest.mark.parametrize("budget", [1, 2**30])
def test_custom_search_returns_only_allowed_candidates(budget: int) -> None:
    ranker = rf.fit("neighbours", PAIRS)
    searcher = Searcher(ranker.model, ranker.seen, budget)
    rows, n = torch.arange(5), len(ranker.candidates)
    allow, exclude = torch.tensor([0, 2]), chosen([[0], [], [2], [0, 2], []], n)
    whole = searcher.of_queries(rows, n, Filter(exclude))
    result = searcher.of_queries(rows, n, Filter(exclude, allow))
    for row in range(5):
        right = [i for i in whole.ids[row].tolist() if i in (0, 2)]
        assert [i for i in result.ids[row].tolist() if i >= 0] == right


# ---------------------------------------------------------------------------------- own search


def likeness(history: list[str]) -> dict[str, int]:
    """By hand: how many queries chose a candidate together with each of the history."""
    rows: dict[str, set[str]] = {}
    for query, candidate in zip(*PAIRS, strict=True):
        rows.setdefault(query, set()).add(candidate)
    both = {
        other: sum(other in row and key in row for row in rows.values() for key in history)
        for other in ("ink", "jam", "pen", "tea")
    }
    left = {other: count for other, count in both.items() if other not in history}
    return dict(sorted(left.items(), key=lambda entry: (-entry[1], entry[0])))


def test_custom_search_answers_queries_and_histories(tmp_path: Path) -> None:
    rf.fit("neighbours", PAIRS).save(tmp_path / "model")
    ranker = rf.load(tmp_path / "model")
    actual = ranker.search(["ann", "eve"])
    expected = [likeness(["tea", "ink"]), likeness(["pen", "jam"])]
    assert actual.keys == [list(scores) for scores in expected]
    assert actual.scores[:, :2].tolist() == [list(scores.values()) for scores in expected]
    assert ranker.search(history=["ink", "tea"]).keys == [actual.keys[0]]
    whole = ranker.search(["dot"], include_seen=True)
    assert whole.keys == [["tea", "ink", "pen", "jam"]]
    assert ranker.search(history=[]).keys == [["tea", "ink", "jam", "pen"]]


def test_custom_search_supports_evaluate_and_predict(tmp_path: Path) -> None:
    """The metrics of lists that ``search`` gives, query by query."""
    rng = torch.Generator().manual_seed(1)
    pairs = (torch.rand(40, 12, generator=rng) < 0.5).nonzero()
    data = rf.prepare((pairs[:, 0], pairs[:, 1]))
    ranker = rf.fit("neighbours", data)
    assert 0 < ranker.model.notes["history"][0]["score"] <= 1
    result = rf.evaluate(ranker, data, metrics=["recall@3"], memory_budget=2**8)
    test = data.split("test")
    for place, row in enumerate(result.rows.tolist()):
        key = data.queries.keys[row]
        truth = set(data.candidates.take(test.select(torch.tensor([row])).candidates).to_list())
        top = ranker.search([key], k=3).keys[0]
        assert result.per_query["recall@3"][place] == pytest.approx(
            len(truth & set(top)) / len(truth)
        )
    pl.DataFrame({"query": data.queries.keys}).write_csv(tmp_path / "who.csv")
    predict(ranker, tmp_path / "who.csv", tmp_path / "lists.parquet", k=3)
    lists = pl.read_parquet(tmp_path / "lists.parquet")
    keys = ranker.search(data.queries.keys.to_list(), k=3).keys
    assert lists["candidate"].to_list() == [key for row in keys for key in row]


def test_custom_search_has_no_similar_candidates() -> None:
    ranker = rf.fit("neighbours", PAIRS)
    with pytest.raises(UserError, match="neighbours cannot find similar candidates") as caught:
        ranker.search(candidates=["tea"])
    assert "rg2" in caught.value.hint
    tensors = {**ranker.model.tensors, "candidates": torch.eye(4)}
    with_vectors = replace(ranker, model=replace(ranker.model, tensors=tensors))
    assert sorted(with_vectors.search(candidates=["tea"]).keys[0]) == ["ink", "jam", "pen"]
