"""Models over texts in the tasks: fit, evaluate and predict."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from text_models import BOTH, TOPICS, as_bags, prepared
from text_models import text_data as text_data
from text_models import words_ranker as words_ranker

import rankfold as rf
from rankfold.errors import UserError
from rankfold.metrics import parse
from rankfold.models.ranker import Ranker
from rankfold.tasks.metric_totals import score
from rankfold.tasks.predict import predict
from rankfold.types import Dataset, Vocabulary

pytestmark = pytest.mark.usefixtures("extra_methods")


# ---------------------------------------------------------------------------------- fitting


@BOTH
def test_validation_scores_are_those_of_an_evaluation(data: Dataset, method: str) -> None:
    ranker = rf.fit(method, data)
    (entry,) = ranker.model.notes["history"]
    result = rf.evaluate(ranker, data, split="validation", metrics="ndcg@10")
    assert entry["score"] == pytest.approx(result["ndcg@10"], abs=1e-6)
    assert entry["score"] > 0.8
    truth = data.split("validation")
    rows = truth.counts().nonzero().flatten()
    seen, specs = data.seen("validation"), [parse("ndcg@10")]
    values, _ = score(ranker.model, truth, seen, rows, specs, by=data.query_texts)
    assert values["ndcg@10"].mean() == pytest.approx(entry["score"], abs=1e-6)


def test_a_method_for_texts_needs_texts_of_queries() -> None:
    pairs = (["a", "a", "b"], ["x", "y", "x"])
    for given in (pairs, rf.prepare(pairs, split=(1, 0, 0))):
        with pytest.raises(UserError, match="words ranks by the texts of queries") as caught:
            rf.fit("words", given)
        assert "--format texts" in caught.value.hint


def test_methods_for_pairs_fit_on_texts_and_show_them(data: Dataset, tmp_path: Path) -> None:
    rf.fit("rg2-plain", data, width=3, out=tmp_path / "model")
    ranker = rf.load(tmp_path / "model")
    assert ranker.texts is None
    assert ranker.tokenizer is None
    result = ranker.search(["d01"], include_seen=True)
    assert result.texts == [[TOPICS[int(key[-1])] for key in result.keys[0]]]
    with pytest.raises(UserError, match="rg2-plain does not rank by text") as caught:
        ranker.search(text=["tea"])
    assert "words" in caught.value.hint
    assert caught.value.hint.startswith("give a known query or a history")


# ---------------------------------------------------------------------------------- evaluation


@BOTH
def test_every_query_is_ranked_by_the_text_that_the_data_has(data: Dataset, method: str) -> None:
    """Including queries that are unknown to the model: here the removed ones."""
    ranker = rf.fit(method, data)
    whole = rf.evaluate(ranker, data, metrics=["recall@2", "ndcg@5"], memory_budget=2**12)
    assert (whole.unknown, whole.trained_on) == (0, 0)
    test = data.split("test")
    assert test.n_pairs > 0
    for place, row in enumerate(whole.rows.tolist()):
        truth = set(data.candidates.take(test.select(torch.tensor([row])).candidates).to_list())
        top = ranker.search([data.queries.keys[row]], k=2).keys[0]
        expected = len(truth & set(top)) / len(truth)
        assert whole.per_query["recall@2"][place] == pytest.approx(expected)
    if method == "words":
        fewer = ranker.forget(data.queries.keys.to_list()[1:])
        assert rf.evaluate(fewer, data, metrics=["recall@2", "ndcg@5"]).metrics == whole.metrics


def test_data_with_other_tokens_is_refused(data: Dataset, ranker: Ranker) -> None:
    other = prepared(vocabulary=9)
    unwritten = replace(other, queries=Vocabulary.of(other.queries.keys))
    pairs = rf.prepare((["d00", "d01"] * 5, [f"tag {i % 5}" for i in range(10)]))
    swapped = replace(data, n_tokens=data.n_tokens + 1)
    weighed = replace(data, query_texts=as_bags(data.query_texts))
    for given, message in (
        (unwritten, "different tokens: 9 and"),
        (swapped, "different tokens"),
        (weighed, "different tokens"),
        (pairs, "words ranks by the texts of queries, but the data has none"),
    ):
        with pytest.raises(UserError, match=message) as caught:
            rf.evaluate(ranker, given)
        assert "prepare" in caught.value.hint


def test_texts_as_written_are_read_in_the_tokens_of_the_model(
    data: Dataset, ranker: Ranker
) -> None:
    other = prepared(vocabulary=9)
    assert rf.evaluate(ranker, other).metrics == rf.evaluate(ranker, data).metrics


def test_pairs_of_the_same_text_count_as_learnt_and_others_do_not(
    data: Dataset, ranker: Ranker
) -> None:
    """Other data renumbers its documents: the same key with another text is another document."""
    train = data.split("train")
    swapped = replace(data, train=data.split("test"), test=train, fingerprint="another")
    assert rf.evaluate(ranker, swapped, metrics="ndcg@3").trained_on == train.n_pairs
    assert data.query_texts is not None
    moved = data.query_texts.select(torch.arange(len(data.queries)).roll(1))
    anew = replace(swapped, query_texts=moved)
    assert rf.evaluate(ranker, anew, metrics="ndcg@3").trained_on == 0


# ---------------------------------------------------------------------------------- predict


@BOTH
def test_texts_of_a_table_are_ranked_as_search_ranks_them(
    data: Dataset, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankfold.tasks.predict.BLOCK_BYTES", 64 * 3 * 4)  # four rows at a time
    ranker = rf.fit(method, data)
    texts = [f"{TOPICS[i % 5]} {i}" for i in range(11)] + ["xyzzy", None]
    keys = [f"q{i}" for i in range(13)]
    pl.DataFrame({"id": keys, "title": texts}).write_parquet(tmp_path / "in.parquet")
    out = tmp_path / "out.parquet"
    done = predict(ranker, tmp_path / "in.parquet", out, k=3, with_text=True)
    assert done == {"queries": 13, "unknown": 0, "without_words": 2, "left_out": 0}
    lists = pl.read_parquet(out)
    assert lists.columns == ["query", "rank", "candidate", "score", "text"]
    expected = ranker.search(text=[text or "" for text in texts], k=3)
    by_query = lists.group_by("query", maintain_order=True).agg(pl.all())
    assert by_query["query"].to_list() == keys
    assert by_query["candidate"].to_list() == expected.keys
    assert by_query["text"].to_list() == expected.texts
    assert by_query["rank"].to_list() == [[1, 2, 3]] * 13
    assert np.allclose(np.array(by_query["score"].to_list()), expected.scores)


def test_known_queries_are_ranked_without_texts(ranker: Ranker, tmp_path: Path) -> None:
    pl.DataFrame({"query": ["d05", "nobody", "d01", "d05"]}).write_csv(tmp_path / "in.csv")
    done = predict(ranker, tmp_path / "in.csv", tmp_path / "out.parquet", k=2)
    assert done == {"queries": 2, "unknown": 1, "without_words": 0, "left_out": 0}
    lists = pl.read_parquet(tmp_path / "out.parquet")
    first, second = ranker.search(["d05", "d01"], k=2).keys
    assert lists["candidate"].to_list() == first + second
    with pytest.raises(UserError, match="unknown query 'nobody'"):
        predict(ranker, tmp_path / "in.csv", tmp_path / "out.parquet", strict=True)


def test_texts_for_a_model_of_pairs_are_refused(data: Dataset, tmp_path: Path) -> None:
    pl.DataFrame({"query": ["d05"], "text": ["tea"]}).write_csv(tmp_path / "in.csv")
    ranker, out = rf.fit("sums", rf.prepare((["a", "b"], ["x", "y"]))), tmp_path / "out.parquet"
    with pytest.raises(UserError, match="sums does not rank by text"):
        predict(ranker, tmp_path / "in.csv", out, text_column="text")
    with pytest.raises(UserError, match="no texts of candidates"):
        predict(ranker, tmp_path / "in.csv", out, with_text=True)
    assert predict(rf.fit("sums", data), tmp_path / "in.csv", out, with_text=True)["queries"] == 1


def test_an_output_that_cannot_be_written_is_refused_before_the_input_is_read(
    ranker: Ranker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda _path, mode: not mode & os.W_OK)
    with pytest.raises(UserError, match=f"{tmp_path} is not writable"):
        predict(ranker, tmp_path / "nowhere.csv", tmp_path / "out.parquet")
