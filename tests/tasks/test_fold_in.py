"""Strong generalisation: held-out queries are ranked by a share of their pairs, never fitted."""

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from planted import dense, groups

import rankfold as rf
from rankfold.data.folder import load
from rankfold.errors import UserError
from rankfold.models.ranker import Ranker
from rankfold.types import Dataset

SPLIT = "queries:20,30"


@pytest.fixture(scope="module")
def data() -> Dataset:
    return rf.prepare(groups(m=240), split=SPLIT, fold_in=0.8)


def test_held_out_queries_take_no_part_in_training(data: Dataset) -> None:
    assert data.given is not None
    held_out = data.given.counts() > 0
    assert int(held_out.sum()) == 50
    assert int(data.split("train").counts()[held_out].sum()) == 0
    assert int(((data.split("validation").counts() > 0) & held_out).sum()) == 20
    assert int(((data.split("test").counts() > 0) & held_out).sum()) == 30


def test_a_fifth_of_the_pairs_is_judged_rounded_down(data: Dataset) -> None:
    assert data.given is not None
    for name in ("validation", "test"):
        judged = data.split(name).counts()
        rows = judged.nonzero().flatten()
        total = (judged + data.given.counts())[rows]
        assert judged[rows].tolist() == [n // 5 for n in total.tolist()]
        assert data.split(name).without(data.given).n_pairs == data.split(name).n_pairs


@pytest.mark.parametrize("name", ["rg2", "ease", "ials", "popularity"])
def test_values_are_those_of_searches_by_history(name: str, data: Dataset) -> None:
    ranker = rf.fit(name, data, metric="ndcg@10")
    assert isinstance(ranker, Ranker)
    metrics = ["ndcg@10", "recall-capped@3", "recall@3"]
    result = rf.evaluate(ranker, data, split="test", metrics=metrics)
    values: dict[str, list[float]] = {metric: [] for metric in metrics}
    for row in result.rows.tolist():
        history, truth = _keys(data, "given", row), set(_keys(data, "test", row))
        got = ranker.search(history=history, k=10).keys[0]
        gains = [key in truth for key in got]
        ideal = sum(1 / math.log2(r + 2) for r in range(min(10, len(truth))))
        values["ndcg@10"].append(sum(g / math.log2(r + 2) for r, g in enumerate(gains)) / ideal)
        values["recall-capped@3"].append(sum(gains[:3]) / min(3, len(truth)))
        values["recall@3"].append(sum(gains[:3]) / len(truth))
    assert len(result.rows) == 30
    for metric in metrics:
        assert result[metric] == pytest.approx(np.mean(values[metric]), abs=1e-5), metric


def test_fit_equals_one_without_the_held_out_queries(data: Dataset) -> None:
    train = dense(data.split("train"))
    rows = train.sum(dim=1).nonzero().flatten()
    pairs = train[rows].nonzero()
    fitted = rf.fit("ease", data).model  # with settings chosen by the held-out queries
    table = pl.DataFrame({"query": pairs[:, 0].numpy(), "item": pairs[:, 1].numpy()})
    alone = rf.fit("ease", table, **fitted.config)
    weights = fitted.tensors["weights"]
    torch.testing.assert_close(weights, alone.model.tensors["weights"])


def test_rg2_selects_by_the_score_of_histories(data: Dataset) -> None:
    ranker = rf.fit("rg2", data, width=8)
    best = rf.evaluate(ranker, data, split="validation", metrics="ndcg@10")
    assert ranker.model.notes["score"] == pytest.approx(best["ndcg@10"], abs=1e-4)
    assert best["ndcg@10"] > 0.3


def test_refit_adds_the_validation_queries_with_their_histories(data: Dataset) -> None:
    assert data.given is not None
    ranker = rf.fit("ease", data, refit=True)
    kept = ranker.model.tensors["offsets"].diff()
    validation = data.split("validation").counts()
    whole = torch.where(validation > 0, validation + data.given.counts(), 0)
    assert torch.equal(kept, data.split("train").counts() + whole)
    assert rf.evaluate(ranker, data, split="test", metrics="ndcg@10").trained_on == 0


def test_folder_keeps_the_histories(data: Dataset, tmp_path: Path) -> None:
    rf.prepare(groups(m=240), split=SPLIT, fold_in=0.8, shards=3, out=tmp_path / "data")
    loaded = load(tmp_path / "data")
    assert loaded.given is not None
    assert data.given is not None
    assert torch.equal(loaded.given.candidates, data.given.candidates)
    assert loaded.fingerprint == data.fingerprint
    assert loaded.summary["given"] == data.given.n_pairs


def test_another_fold_is_other_data(data: Dataset) -> None:
    assert rf.prepare(groups(m=240), split=SPLIT, fold_in=0.5).fingerprint != data.fingerprint


def test_method_without_histories_is_refused(data: Dataset) -> None:
    with pytest.raises(UserError, match="bpr cannot rank held-out queries") as error:
        rf.fit("bpr", data)
    assert "ease" in error.value.hint


def test_fold_in_without_held_out_queries_is_refused() -> None:
    with pytest.raises(UserError, match="needs held-out queries") as error:
        rf.prepare(groups(), fold_in=0.8)
    assert "queries:" in error.value.hint


def test_queries_with_too_few_pairs_are_refused() -> None:
    pairs = pl.DataFrame(
        {"query": [n // 2 for n in range(40)], "candidate": [n % 2 for n in range(40)]}
    )
    with pytest.raises(UserError, match="no held-out query has 5 pairs"):
        rf.prepare(pairs, split="queries:2,2", fold_in=0.8)


def test_candidates_that_train_lacks_are_dropped() -> None:
    """Query 0 alone has the candidates 100 to 119: if it is held out, they are gone."""
    rare = pl.DataFrame({"query": [1000] * 20, "candidate": list(range(100, 120))})
    pairs = pl.concat([groups(m=60), rare])
    for seed in range(30):
        data = rf.prepare(pairs, split="queries:10,20", fold_in=0.8, seed=seed)
        own = int(data.queries.find([1000])[0])
        if own < 0:
            assert max(data.candidates.keys) < 100
            assert data.summary["dropped"][-1]["rows"] >= 20
            return
    pytest.fail("the query was never held out")


def test_filters_by_frequency_run_once_candidates_first() -> None:
    pairs = pl.DataFrame({"query": [1, 1, 1, 2, 2, 2, 3, 3], "candidate": [1, 2, 9, 1, 2, 3, 1, 8]})
    data = rf.prepare(pairs, min_candidate_pairs=2, min_query_pairs=2, split=(1.0, 0.0, 0.0))
    assert data.queries.keys.to_list() == [1, 2]  # 3 has one pair left
    assert data.candidates.keys.to_list() == [1, 2]


def _keys(data: Dataset, name: str, row: int) -> list[int]:
    part = getattr(data, name)
    return data.candidates.take(part.part(row, row + 1).candidates.long()).to_list()
