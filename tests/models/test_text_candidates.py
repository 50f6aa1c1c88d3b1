"""Models over texts: candidates are removed and added."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from text_models import LABELS, TOPICS, chosen_by, prepared
from text_models import text_data as text_data
from text_models import words_ranker as words_ranker

import rankfold as rf
from rankfold.errors import UserError
from rankfold.models.ranker import Ranker
from rankfold.tasks.update import extend, forget
from rankfold.types import Dataset

pytestmark = pytest.mark.usefixtures("extra_methods")


# ---------------------------------------------------------------------------------- candidates


def test_removed_candidates_are_gone_and_the_others_keep_their_order(
    data: Dataset, ranker: Ranker, tmp_path: Path
) -> None:
    ranker.save(tmp_path / "model")
    n = len(ranker.candidates)
    gone = ranker.candidates.keys.to_list()[1::3]
    done = forget(tmp_path / "model", [*gone, "unheard of"], "candidate")
    assert (done.forgotten, done.unknown) == (len(gone), ["unheard of"])
    fewer = rf.load(tmp_path / "model")
    assert isinstance(fewer, Ranker)
    assert fewer.model.notes["removed_candidates"] == len(gone)
    assert fewer.model.tensors["candidates"].shape[0] == n - len(gone)
    texts = ["tea", "cold maps"]
    before, after = ranker.search(text=texts, k=n), fewer.search(text=texts, k=n)
    for old, new in zip(before, after, strict=True):
        kept = [(key, score) for key, score in zip(old.keys, old.scores, strict=True)]
        kept = [(key, score) for key, score in kept if key not in gone]
        assert new.keys == [key for key, _ in kept]
        assert new.scores == pytest.approx([score for _, score in kept])
    queries = ranker.queries.keys.to_list()[:5]  # seen pairs have other numbers now
    old, new = ranker.search(queries, k=n), fewer.search(queries, k=n)
    assert [set(one) - set(gone) for one in old.keys] == [set(one) for one in new.keys]
    rf.evaluate(fewer, data, metrics="ndcg@10")
    assert ranker.forget(candidates=[]) is ranker
    with pytest.raises(UserError, match="no candidates besides"):
        ranker.forget(candidates=ranker.candidates.keys.to_list())
    with pytest.raises(UserError, match="cannot remove candidates"):
        rf.fit("overlap", data).forget(candidates=gone)


def test_new_candidates_are_added_by_their_texts(ranker: Ranker, tmp_path: Path) -> None:
    ranker.save(tmp_path / "model")
    new = pl.DataFrame(
        {
            "title": ["old tea", "xyzzy", None, "cold äther"],
            "label": ["tag 25", "a tag", "maps", "z"],
        }
    )
    grown = extend(tmp_path / "model", new, "label")
    again = rf.load(tmp_path / "model")
    for model in (grown, again):
        assert model.candidates.texts is not None
        table = dict(zip(model.candidates.keys, model.candidates.texts, strict=True))
        assert table["tag 25"] == "old tea"
        assert table["maps"] == "maps"  # known by its key
        assert table["tag 2"] == "green tea"
        assert model.candidates.keys.is_sorted()
        assert len(model.candidates) == 9
        first = model.search(text=["tea, old"], k=1)
        assert (first.keys, first.texts) == ([["tag 25"]], [["old tea"]])
        assert set(model.search(text=[""], k=9).keys[0][-4:]) == set(new["label"])
    [entry] = again.model.notes["extended"]
    assert entry == {"candidates": 4, "left_out": 0, "without_words": 1}
    assert rows_by_key(again) == rows_by_key(ranker)


def test_new_candidates_are_added_from_lines(ranker: Ranker, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("tag 25\told tea\ntag 26\tcold tea\n")
    grown = ranker.extend(tmp_path / "new.txt")
    assert {"tag 25", "tag 26"} < set(grown.candidates.keys)
    assert len(grown.candidates) == len(ranker.candidates) + 2
    (tmp_path / "new.txt").write_text("code\twhat\ntag 25\told tea\n")
    grown = ranker.extend(tmp_path / "new.txt", text_column="what")
    assert len(grown.candidates) == len(ranker.candidates) + 1
    with pytest.raises(UserError, match="no column 'body'"):
        ranker.extend(tmp_path / "new.txt", text_column="body")


def rows_by_key(ranker: Ranker) -> dict[Any, list[Any]]:
    return {key: chosen_by(ranker, key) for key in ranker.queries.keys}


def test_new_candidates_have_the_vectors_of_a_fit(data: Dataset, ranker: Ranker) -> None:
    """A candidate added with the text of a known one is ranked beside it."""
    grown = ranker.extend(pl.DataFrame({"candidate": ["twin"], "words": ["green tea"]}))
    names = dict(zip(grown.candidates.keys, grown.model.tensors["candidates"], strict=True))
    assert torch.equal(names["twin"], names["tag 2"])
    before = dict(zip(data.candidates.keys, ranker.model.tensors["candidates"], strict=True))
    assert all(torch.equal(names[key], before[key]) for key in before)


@pytest.mark.parametrize(
    ("table", "columns", "message"),
    [
        ({"candidate": ["tag 1"], "text": ["x"]}, {}, "knows the candidate 'tag 1' of"),
        ({"candidate": ["a", "a"], "text": ["x", "y"]}, {}, "the key 'a' more than once"),
        ({"candidate": ["a"], "b": ["x"], "c": ["y"]}, {}, "cannot tell which column"),
        ({"candidate": ["a"], "text": [["x"]]}, {}, "holds List"),
        ({"candidate": ["a"]}, {}, "no column of texts"),
        ({"candidate": ["a"], "text": ["x"]}, {"text_column": "body"}, "no column 'body'"),
        ({"candidate": ["a"], "text": ["x"]}, {"key_column": "id"}, "no column 'id'"),
    ],
)
def test_candidates_that_cannot_be_added_are_refused(
    ranker: Ranker, table: dict[str, Any], columns: dict[str, str], message: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        ranker.extend(pl.DataFrame(table), **columns)
    assert caught.value.hint


def test_custom_search_refuses_new_candidates(data: Dataset) -> None:
    with pytest.raises(UserError, match="overlap cannot add candidates") as caught:
        rf.fit("overlap", data).extend(LABELS.with_columns(candidate=pl.lit("new")))
    assert "fit it again" in caught.value.hint


def test_candidates_added_by_features_show_no_text() -> None:
    sizes = pl.DataFrame({"candidate": LABELS["candidate"], "size": [1.0, 2.0, 3.0, 4.0, 5.0]})
    ranker = rf.fit("slopes", prepared(candidate_features=sizes))
    grown = ranker.extend(pl.DataFrame({"candidate": ["tag 25"], "size": [2.5]}))
    result = grown.search(["d01"], include_seen=True)
    assert result.texts is not None
    shown = dict(zip(result.keys[0], result.texts[0], strict=True))
    topics = {f"tag {i}": topic for i, topic in enumerate(TOPICS)}
    assert shown == {**topics, "tag 25": None}


def test_features_are_not_texts(data: Dataset) -> None:
    with pytest.raises(UserError, match="sums does not rank by text"):
        rf.fit("sums", data).extend(LABELS, text_column="text")
