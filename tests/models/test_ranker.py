"""A ranker returns keys, reports unknown keys, and is saved and loaded unchanged."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from rankings import assert_same_keys

import rankfold as rf
from rankfold import storage
from rankfold.errors import UserError

PAIRS = (
    ["ann", "ann", "bob", "bob", "cid", "cid", "dot"],
    ["tea", "ink", "tea", "pen", "ink", "jam", "tea"],
)


@pytest.fixture
def ranker() -> rf.Ranker:
    return rf.fit("rg2-plain", PAIRS, width=3, reg=0.01)


def test_rankings_are_sorted_and_exclude_seen_candidates(ranker: rf.Ranker) -> None:
    result = ranker.search(["ann", "dot"], k=10)
    assert [set(keys) for keys in result.keys] == [{"pen", "jam"}, {"ink", "pen", "jam"}]
    assert result.scores.shape == (2, 4)
    finite = [row[np.isfinite(row)] for row in result.scores]
    assert [len(row) for row in finite] == [2, 3]
    assert all((np.diff(row) <= 0).all() for row in finite)


def test_a_ranker_is_shown_in_one_line(ranker: rf.Ranker) -> None:
    sizes = f"{len(ranker.queries)} queries x {len(ranker.candidates)} candidates"
    assert repr(ranker) == f"<Ranker {ranker.model.method}: {sizes}>"


def test_scores_are_inner_products(ranker: rf.Ranker) -> None:
    result = ranker.search(["bob"], k=4, include_seen=True)
    tensors = ranker.model.tensors
    query = tensors["queries"][ranker.queries.rows(["bob"])[0]]
    for key, score in zip(result.keys[0], result.scores[0], strict=True):
        candidate = tensors["candidates"][ranker.candidates.rows([key])[0]]
        assert score == pytest.approx(float(query @ candidate), rel=1e-5)


def test_history_of_a_known_query_gives_its_list(ranker: rf.Ranker) -> None:
    actual, expected = ranker.search(history=["tea", "ink", "tea"]), ranker.search(["ann"])
    assert sorted(actual.keys[0]) == ["jam", "pen"]
    assert_same_keys(actual, expected)


def test_an_empty_history_gets_the_most_popular(ranker: rf.Ranker) -> None:
    result = ranker.search(history=[], k=10)
    assert result.keys == [["tea", "ink", "jam", "pen"]]  # equal counts by key
    assert result.scores.tolist() == [[3.0, 2.0, 1.0, 1.0]]


def test_a_candidate_is_not_similar_to_itself(ranker: rf.Ranker) -> None:
    result = ranker.search(candidates=["tea"], k=10)
    assert set(result.keys[0]) == {"ink", "pen", "jam"}
    assert (np.abs(result.scores[0][:3]) <= 1 + 1e-5).all()


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"queries": ["anna"]}, "unknown query 'anna'"),
        ({"history": ["teaa"]}, "unknown candidate 'teaa'"),
        ({}, "got none"),
        ({"queries": ["ann"], "history": ["tea"]}, "got queries and history"),
        ({"queries": ["ann"], "k": 0}, "`k` must be at least 1, got 0"),
    ],
)
def test_invalid_searches_are_refused(
    ranker: rf.Ranker, question: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        ranker.search(**question)  # type: ignore[arg-type]
    assert caught.value.hint


def test_unknown_key_error_suggests_the_nearest(ranker: rf.Ranker) -> None:
    with pytest.raises(UserError) as caught:
        ranker.search(["anna"])
    assert "'ann'" in caught.value.hint


def test_save_and_load_round_trip(ranker: rf.Ranker, tmp_path: Path) -> None:
    ranker.save(tmp_path / "model")
    again = rf.load(tmp_path / "model")
    assert again.model.method == "rg2-plain"
    assert again.model.config == ranker.model.config
    for name, tensor in ranker.model.tensors.items():
        assert torch.equal(again.model.tensors[name], tensor)
    keys = ["ann", "bob", "cid", "dot"]
    assert again.search(keys).keys == ranker.search(keys).keys
    assert np.array_equal(again.search(keys).scores, ranker.search(keys).scores)


def test_integer_keys_are_found_as_numbers_and_as_text() -> None:
    ranker = rf.fit("popularity", ([1, 1, 20, 3], [100, 7, 100, 7]))
    assert ranker.search([20]).keys == ranker.search(["20"]).keys == [[7]]
    with pytest.raises(UserError, match="unknown query '020'"):
        ranker.search(["020"])


def test_excluded_pairs_are_never_returned(tmp_path: Path) -> None:
    """Pages link to pages: no page is its own candidate, even with ``include_seen``."""
    links = (["a", "a", "b", "b", "c", "a"], ["b", "c", "c", "a", "a", "a"])
    data = rf.prepare(links, split=(1.0, 0.0, 0.0), exclude_self=True)
    assert data.summary["dropped"] == [{"why": "own key", "rows": 1}]
    rf.fit("popularity", data).save(tmp_path / "model")
    ranker = rf.load(tmp_path / "model")
    result = ranker.search(["a", "b", "c"], include_seen=True)
    assert [sorted(keys) for keys in result.keys] == [["b", "c"], ["a", "c"], ["a", "b"]]
    assert ranker.search(["a", "b", "c"]).keys == [[], [], ["b"]]


@pytest.mark.parametrize("lacking", ["method", "config", "sizes", "notes"])
def test_a_forged_folder_is_refused(ranker: rf.Ranker, tmp_path: Path, lacking: str) -> None:
    """A folder with valid checksums may still not be a model."""
    ranker.save(tmp_path / "model")
    folder = storage.read(tmp_path / "model")
    meta = {k: v for k, v in folder.manifest.items() if k not in ("checksum", "files", lacking)}
    storage.write(tmp_path / "forged", "model", meta, {"tensors": {"queries": torch.zeros(1, 1)}})
    with pytest.raises(UserError, match="is damaged"):
        rf.load(tmp_path / "forged")


@pytest.mark.parametrize(
    "question",
    [{"queries": ["dot"]}, {"history": ["tea"]}, {"candidates": ["tea"]}],
    ids=["queries", "history", "candidates"],
)
def test_exclude_and_allow_accept_lists_of_keys(
    ranker: rf.Ranker, question: dict[str, list[str]]
) -> None:
    best = ranker.search(**question).keys[0]
    assert len(best) == 3
    assert ranker.search(**question, exclude=[best[0], "no such"]).keys == [best[1:]]
    assert ranker.search(**question, allow=[best[2], "no such", best[0]]).keys == [best[::2]]
    assert ranker.search(**question, allow=best, exclude=best[1:]).keys == [best[:1]]
    assert ranker.search(**question, allow=["no such"]).keys == [[]]
    assert ranker.search(**question, allow=[]).keys == [[]]
    assert ranker.search(**question, allow=["tea"]).keys == [[]]  # seen, or the query itself


def test_about_is_plain_data_with_the_kind(ranker: rf.Ranker, tmp_path: Path) -> None:
    assert ranker.about["kind"] == "exact"
    ranker.save(tmp_path / "model")
    about = rf.load(tmp_path / "model", "inverted").about
    assert json.loads(json.dumps(about)) == about
    assert about["kind"] == "inverted"
    assert about["of"] == "queries"
