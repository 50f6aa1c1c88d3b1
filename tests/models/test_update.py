"""Pairs, queries and candidates are added to a model or removed: other rows stay bit-identical."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import scipy.sparse
import torch
from added_pairs import MORE, PAIRS, rows_of, same, vectors_of
from torch import Tensor

import rankfold as rf
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.models.ranker import Ranker
from rankfold.models.search import kept_histories
from rankfold.tasks.update import extend

pytestmark = pytest.mark.usefixtures("extra_methods")


@pytest.fixture
def ranker() -> Ranker:
    return rf.fit("sums", PAIRS)


def test_new_queries_get_the_vector_of_their_history(ranker: Ranker) -> None:
    grown = ranker.add(MORE)
    assert grown.queries.keys.to_list() == ["ann", "bob", "dot", "eve", "fay", "hal", "zoe"]
    before, after = vectors_of(ranker), vectors_of(grown)
    assert torch.equal(after["ann"], before["bob"])  # tea and ink, both of them
    names = dict(zip(ranker.candidates.keys, ranker.model.tensors["candidates"], strict=True))
    assert torch.equal(after["eve"], names["pen"])
    assert torch.equal(after["dot"], names["tea"] + names["pen"] + names["jam"])
    for key in ("bob", "fay", "hal"):
        assert torch.equal(after[key], before[key])
    candidates = [model.tensors["candidates"] for model in (ranker.model, grown.model)]
    assert torch.equal(*candidates)


def test_seen_pairs_include_old_and_new_ones(ranker: Ranker) -> None:
    grown = ranker.add(MORE)
    assert rows_of(grown) == {
        "ann": ["ink", "tea"],
        "bob": ["ink", "tea"],
        "dot": ["jam", "pen", "tea"],
        "eve": ["pen"],
        "fay": ["ink", "jam"],
        "hal": ["tea"],
        "zoe": ["pen"],
    }
    assert sorted(grown.search(["dot"]).keys[0]) == ["ink"]
    assert grown.search(history=[]).scores.tolist() == [[4.0, 3.0, 3.0, 2.0]]  # all count


def test_notes_count_added_and_skipped_rows(ranker: Ranker) -> None:
    grown = ranker.add(MORE)
    [entry] = grown.model.notes["added"]
    counts = {"queries": 3, "changed": 1, "pairs": 5, "left_out": 1, "unknown_candidates": 1}
    assert {name: entry[name] for name in counts} == counts
    assert grown.model.notes["data"] == ranker.model.notes["data"]
    assert "added" not in ranker.model.notes


@pytest.mark.parametrize("method", ["sums", "neighbours", "popularity", "rg2-plain"])
def test_adding_twice_changes_only_the_notes(method: str) -> None:
    once = rf.fit(method, PAIRS).add(MORE)
    twice = once.add(MORE)
    assert same(once, twice)
    first, second = twice.model.notes["added"]
    assert (first["queries"], first["changed"], first["pairs"]) == (3, 1, 5)
    assert (second["queries"], second["changed"], second["pairs"]) == (0, 0, 0)
    own = once.add(PAIRS)
    assert same(once, own)


def test_fold_in_equals_the_fit() -> None:
    """A query added with the history of a fitted one gets the same ranking."""
    ranker = rf.fit("rg2-plain", PAIRS, width=3, reg=0.01)
    after = vectors_of(ranker.add(MORE))
    torch.testing.assert_close(after["ann"], vectors_of(ranker)["bob"], atol=1e-4, rtol=1e-4)
    assert torch.equal(after["hal"], vectors_of(ranker)["hal"])


def test_a_known_query_is_folded_in_with_all_its_seen_pairs() -> None:
    """Including validation pairs, although the model was not fitted on them."""
    parts = [
        pl.DataFrame({"query": ["a", "b"], "candidate": ["x", "y"]}),
        pl.DataFrame({"query": ["a", "b"], "candidate": ["y", "z"]}),
    ]
    data = rf.prepare(train=parts[0], validation=parts[1])
    ranker = rf.fit("sums", data)
    x, y, z = ranker.model.tensors["candidates"]
    after = vectors_of(ranker.add((["a"], ["z"])))
    assert torch.equal(vectors_of(ranker)["a"], x)
    assert torch.equal(after["a"], x + y + z)
    assert torch.equal(after["b"], y)


def test_tables_matrices_data_and_folders_can_be_added(tmp_path: Path) -> None:
    ranker = rf.fit("sums", ([0, 1, 2, 5], [0, 1, 2, 1]))
    queries, candidates = [1, 4, 9], [2, 0, 1]
    frame = pl.DataFrame({"query": queries, "candidate": candidates})
    matrix = scipy.sparse.csr_matrix(([1.0] * 3, (queries, candidates)), shape=(12, 3))
    data = rf.prepare(frame, split=(1.0, 0.0, 0.0), out=tmp_path / "data")
    expected = ranker.add((queries, candidates))
    assert expected.queries.keys.to_list() == [0, 1, 2, 4, 5, 9]  # not the matrix' empty rows
    for more in (frame, frame.to_pandas(), frame.to_arrow(), matrix, data, tmp_path / "data"):
        assert same(ranker.add(more), expected)


def test_only_training_pairs_of_data_are_added() -> None:
    parts = [pl.DataFrame({"query": ["new"], "candidate": [c]}) for c in ("tea", "ink", "pen")]
    data = rf.prepare(train=parts[0], validation=parts[1], test=parts[2])
    assert rows_of(rf.fit("sums", PAIRS).add(data))["new"] == ["tea"]


def test_words_among_integers_move_every_row() -> None:
    """As text, 10 sorts before 2: every tensor with a row per query is reordered."""
    ranker = rf.fit("sums", ([2, 2, 10, 30], ["a", "b", "c", "a"]))
    grown = ranker.add((["x"], ["c"]))
    assert grown.queries.keys.to_list() == ["10", "2", "30", "x"]
    before, after = vectors_of(ranker), vectors_of(grown)
    assert all(torch.equal(after[str(key)], before[key]) for key in (2, 10, 30))
    assert rows_of(grown) == {"10": ["c"], "2": ["a", "b"], "30": ["a"], "x": ["c"]}
    assert grown.search([10]).keys == ranker.search([10]).keys


def test_excluded_pairs_move_and_those_of_the_data_are_added() -> None:
    links = (["b", "b", "d"], ["d", "c", "b"])
    ranker = rf.fit("popularity", rf.prepare(links, split=(1.0, 0.0, 0.0), exclude_self=True))
    more = rf.prepare((["c", "d"], ["d", "c"]), split=(1.0, 0.0, 0.0), exclude_self=True)
    for grown in (ranker.add(more), ranker.add(more).add(more)):
        assert grown.excluded is not None
        assert rows_of(grown, grown.excluded) == {"b": ["b"], "c": ["c"], "d": ["d"]}
        assert sorted(grown.search(["c"], include_seen=True).keys[0]) == ["b", "d"]
    plain = rf.fit("popularity", links).add(more)
    assert plain.excluded is not None
    assert rows_of(plain, plain.excluded) == {"b": [], "c": ["c"], "d": ["d"]}
    assert ranker.add((["a"], ["b"])).search(["b"], include_seen=True).keys == [["c", "d"]]


def test_custom_search_includes_added_pairs(tmp_path: Path) -> None:
    ranker = rf.fit("neighbours", PAIRS)
    ranker.add(MORE).save(tmp_path / "model")
    grown = rf.load(tmp_path / "model")
    assert rows_of(grown, kept_histories(grown.model, 4)) == rows_of(grown)
    assert grown.search(["ann"]).keys == ranker.search(["bob"]).keys
    whole = ["jam", "pen", "tea"]
    assert grown.search(["dot"]).keys == ranker.search(history=whole).keys
    assert torch.equal(grown.model.tensors["likeness"], ranker.model.tensors["likeness"])
    fewer = grown.forget(["bob", "dot"])
    assert rows_of(fewer, kept_histories(fewer.model, 4)) == rows_of(fewer)
    assert fewer.search(["ann"]).keys == grown.search(["ann"]).keys


def test_save_and_load_round_trip(ranker: Ranker, tmp_path: Path) -> None:
    grown = ranker.add(MORE)
    grown.save(tmp_path / "model")
    again = rf.load(tmp_path / "model")
    assert same(again, grown)
    assert again.model.notes == grown.model.notes
    keys = grown.queries.keys.to_list()
    assert again.search(keys).keys == grown.search(keys).keys
    assert same(again.add(MORE), grown)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((["ann"], ["wax"]), "knows no candidate of the pairs"),
        (([["ann"]],), "cannot read"),
        ("nowhere", "there is no folder nowhere"),
    ],
)
def test_invalid_pairs_are_refused(ranker: Ranker, more: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        ranker.add(more)


def test_graded_rows_and_unsupported_methods_are_refused(
    ranker: Ranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="graded rows"):
        ranker.add(rf.prepare(source="retinamnist"))
    monkeypatch.setitem(METHODS, "sums", replace(METHODS["sums"], answers=()))
    with pytest.raises(UserError, match="sums cannot add pairs") as caught:
        ranker.add(MORE)
    assert "fit it again" in caught.value.hint


# ---------------------------------------------------------------------------------- remove


def test_removal_leaves_other_queries_unchanged(ranker: Ranker) -> None:
    fewer = ranker.forget(["dot", "hal", "dot"])
    assert fewer.queries.keys.to_list() == ["bob", "fay"]
    before, after = vectors_of(ranker), vectors_of(fewer)
    assert all(torch.equal(after[key], before[key]) for key in ("bob", "fay"))
    assert rows_of(fewer) == {"bob": ["ink", "tea"], "fay": ["ink", "jam"]}
    assert fewer.model.notes["removed"] == 2
    assert fewer.forget("bob").model.notes["removed"] == 3
    with pytest.raises(UserError, match="unknown query 'dot'"):
        fewer.search(["dot"])


def test_a_query_can_be_added_again_after_it_was_removed(ranker: Ranker) -> None:
    again = ranker.forget(["dot"]).add((["dot", "dot"], ["tea", "pen"]))
    assert same(replace(again, model=_without_flags(again)), ranker)


def _without_flags(ranker: Ranker) -> Any:
    kept = {k: t for k, t in ranker.model.tensors.items() if k != "folded_in"}
    return replace(ranker.model, tensors=kept)


def test_excluded_pairs_of_removed_queries_are_gone() -> None:
    links = (["b", "b", "c", "d"], ["d", "c", "b", "b"])
    ranker = rf.fit("popularity", rf.prepare(links, split=(1.0, 0.0, 0.0), exclude_self=True))
    fewer = ranker.forget(["b"])
    assert rows_of(fewer, fewer.excluded) == {"c": ["c"], "d": ["d"]}


def test_unknown_queries_and_all_queries_are_not_removed(ranker: Ranker) -> None:
    with pytest.raises(UserError, match="unknown query 'bo'") as caught:
        ranker.forget(["dot", "bo"])
    assert "'bob'" in caught.value.hint
    with pytest.raises(UserError, match="no queries besides these 4"):
        ranker.forget(["bob", "dot", "fay", "hal"])


# ---------------------------------------------------------------------------------- candidates


GOODS = pl.DataFrame(
    {
        "name": ["tea", "ink", "pen", "jam"],
        "price": [2.0, 5.0, 1.0, None],
        "kind": ["food", "tool", "tool", "food"],
    }
)
NEW = pl.DataFrame(
    {
        "name": ["wax", "oil", "zip", "bun"],
        "kind": ["tool", "food", "toy", "food"],
        "price": [5.0, 2.0, 3.0, -4.0],
    }
)


def candidates_of(ranker: Ranker) -> dict[Any, Tensor]:
    vectors = ranker.model.tensors["candidates"]
    return dict(zip(ranker.candidates.keys.to_list(), vectors, strict=True))


@pytest.fixture
def informed() -> Ranker:
    return rf.fit("slopes", rf.prepare(PAIRS, split=(1, 0, 0), candidate_features=GOODS))


def test_new_candidates_get_the_vector_of_their_features(informed: Ranker) -> None:
    grown = informed.extend(NEW)
    names = ["bun", "ink", "jam", "oil", "pen", "tea", "wax", "zip"]
    assert grown.candidates.keys.to_list() == names
    before, after = candidates_of(informed), candidates_of(grown)
    assert all(torch.equal(after[key], before[key]) for key in before)
    assert torch.equal(after["wax"], before["ink"])  # the same price and kind
    assert torch.equal(after["oil"], before["tea"])
    slopes = informed.model.tensors["slopes"]
    assert torch.equal(after["zip"], 3 * slopes[0] - slopes[1])  # a toy is unknown: -1
    assert torch.equal(after["bun"], -4 * slopes[0])  # food is the first level
    assert torch.equal(grown.model.tensors["queries"], informed.model.tensors["queries"])
    assert rows_of(grown) == rows_of(informed)
    assert grown.model.notes["extended"] == [{"candidates": 4, "left_out": 0}]
    assert candidates_of(informed).keys() == before.keys()  # the old one is unchanged


def test_new_candidates_are_found(informed: Ranker) -> None:
    grown = informed.extend(NEW)
    for name, key in (("tea", "oil"), ("ink", "wax")):
        like = grown.search(candidates=[name], k=1)
        assert like.keys == [[key]]
        assert like.scores[0, 0] == pytest.approx(1.0)
    whole = grown.search(["bob"], k=10, include_seen=True)
    assert sorted(whole.keys[0]) == grown.candidates.keys.to_list()
    vectors, query = candidates_of(grown), vectors_of(grown)["bob"]
    scores = dict(zip(whole.keys[0], whole.scores[0].tolist(), strict=True))
    assert all(scores[key] == pytest.approx(float(query @ vectors[key])) for key in vectors)
    assert not {"tea", "ink"} & set(grown.search(["bob"], k=10).keys[0])  # seen ones moved too
    twins = [grown.search(history=[key], k=8, include_seen=True).keys for key in ("oil", "tea")]
    assert twins[0] == twins[1]
    popular = grown.search(history=[], k=8).keys[0]
    assert set(popular[-4:]) == {"bun", "oil", "wax", "zip"}  # they were never chosen


def test_pairs_with_new_candidates_can_be_added_then(informed: Ranker) -> None:
    grown = informed.extend(NEW).add((["ann", "bob"], ["wax", "zip"]))
    names, queries = candidates_of(grown), vectors_of(grown)
    assert torch.equal(queries["ann"], names["wax"])
    assert torch.equal(queries["bob"], names["tea"] + names["ink"] + names["zip"])
    assert rows_of(grown)["bob"] == ["ink", "tea", "zip"]


def test_candidates_can_be_added_one_after_another(informed: Ranker) -> None:
    twice = informed.extend(NEW.tail(1)).extend(NEW.head(3))
    assert same(twice, informed.extend(NEW))
    assert [entry["candidates"] for entry in twice.model.notes["extended"]] == [1, 3]


@pytest.mark.parametrize("keys", [[2, 40, 7], ["2", "40", "x7"]])
def test_integer_candidates_and_words_among_them(keys: list[Any]) -> None:
    """As text, 10 sorts before 3: every tensor with a row per candidate is reordered."""
    goods = pl.DataFrame({"candidate": [3, 10, 30], "size": [1.0, 2.0, 3.0]})
    links = (["3", "3", "10", "x7"], [10, 30, 3, 30])
    how: Any = {"split": (1, 0, 0), "exclude_self": True, "candidate_features": goods}
    ranker = rf.fit("slopes", rf.prepare(links, **how))
    news = pl.DataFrame({"size": [5.0, 6.0, 7.0], "candidate": keys})
    grown = ranker.extend(news)
    expected = sorted([3, 10, 30, *keys]) if keys[0] == 2 else ["10", "2", "3", "30", "40", "x7"]
    assert grown.candidates.keys.to_list() == expected
    slope = ranker.model.tensors["slopes"][0]
    sizes = {3: 1, 10: 2, 30: 3, **dict(zip(keys, (5, 6, 7), strict=True))}
    after = {str(key): vector for key, vector in candidates_of(grown).items()}
    assert all(torch.equal(after[str(key)], size * slope) for key, size in sizes.items())
    seen = {name: sorted(map(str, row)) for name, row in rows_of(grown).items()}
    assert seen == {"3": ["10", "30"], "10": ["3"], "x7": ["30"]}
    hidden = {name: list(map(str, row)) for name, row in rows_of(grown, grown.excluded).items()}
    own = ["x7"] if "x7" in keys else []  # a new candidate is not returned for itself either
    assert hidden == {"3": ["3"], "10": ["10"], "x7": own}


def test_extended_models_round_trip(informed: Ranker, tmp_path: Path) -> None:
    informed.save(tmp_path / "model")
    NEW.write_parquet(tmp_path / "new.parquet")
    grown = extend(tmp_path / "model", tmp_path / "new.parquet")
    again = rf.load(tmp_path / "model")
    assert same(again, grown)
    assert same(again, informed.extend(NEW))
    assert again.candidates.keys.equals(grown.candidates.keys)
    more = pl.DataFrame({"name": ["cup"], "kind": ["tool"], "price": [5.0]})
    assert torch.equal(candidates_of(again.extend(more))["cup"], candidates_of(again)["ink"])


def test_a_name_beside_the_features_is_the_key(informed: Ranker) -> None:
    plain = informed.extend(NEW)
    last = NEW.select("kind", "price", "name")
    assert same(informed.extend(last), plain)
    spare = last.with_columns(other=pl.lit("x")).select("other", *last.columns)
    assert same(informed.extend(spare, "name"), plain)
    assert same(informed.extend(spare.rename({"name": "candidate"})), plain)


def test_candidates_that_cannot_be_added_are_refused(informed: Ranker) -> None:
    for table, message in (
        (GOODS.vstack(NEW.select(GOODS.columns)), "knows the candidate 'tea' and 3 more of"),
        (NEW.vstack(NEW), "the key '.*' more than once"),
        (NEW.drop("price"), "has no column 'price'"),
        (NEW.with_columns(price=pl.lit("cheap")), "holds 'cheap'"),
        (NEW.drop("name"), "has no key column"),
        ((["a"], ["b"]), "cannot read features from tuple"),
    ):
        with pytest.raises(UserError, match=message) as caught:
            informed.extend(table)
        assert caught.value.hint


def test_models_without_features_refuse_new_candidates(ranker: Ranker) -> None:
    with pytest.raises(UserError, match="sums makes no vectors from features") as caught:
        ranker.extend(NEW)
    assert "slopes" in caught.value.hint
    bare = rf.fit("slopes", PAIRS)
    bare = replace(bare, model=replace(bare.model, method="slopes"))
    with pytest.raises(UserError, match="fitted without features") as caught:
        bare.extend(NEW)
    assert "--candidate-features" in caught.value.hint
