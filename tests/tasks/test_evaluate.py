"""Evaluation equals a loop over queries that sorts all scores."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from random_rankers import pairs_of, random_case, row_of

import rankfold as rf
from rankfold.errors import UserError
from rankfold.models.ranker import Ranker
from rankfold.models.search import Filter
from rankfold.types import Dataset, Interactions, Model, Vocabulary

METRICS = ["ndcg@3", "mrr@3", "recall@3", "hit@3", "precision@3", "coverage@3"]


def by_loop(data: Dataset, ranker: Ranker, split: str, k: int) -> dict[str, float]:
    scores = (ranker.model.tensors["queries"] @ ranker.model.tensors["candidates"].T).tolist()
    hidden = [data.train] + ([data.validation] if split == "test" else [])
    values: dict[str, list[float]] = {
        name: [] for name in ("ndcg", "mrr", "recall", "hit", "precision")
    }
    shown = set()
    for query in range(len(data.queries)):
        truth = set(row_of(getattr(data, split), query))
        if not truth:
            continue
        seen = {c for part in hidden for c in row_of(part, query)}
        left = [c for c in range(len(data.candidates)) if c not in seen]
        ranked = sorted(left, key=lambda c: (-scores[query][c], c))[:k]
        hits = [place for place, c in enumerate(ranked, 1) if c in truth]
        shown |= set(ranked)
        ideal = sum(1 / math.log2(place + 1) for place in range(1, min(k, len(truth)) + 1))
        values["ndcg"].append(sum(1 / math.log2(place + 1) for place in hits) / ideal)
        values["mrr"].append(1 / hits[0] if hits else 0.0)
        values["recall"].append(len(hits) / len(truth))
        values["hit"].append(float(bool(hits)))
        values["precision"].append(len(hits) / k)
    means = {f"{name}@{k}": sum(v) / len(v) for name, v in values.items()}
    return {**means, f"coverage@{k}": len(shown) / len(data.candidates)}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("split", ["validation", "test"])
def test_equals_a_loop_over_queries(seed: int, split: str) -> None:
    data, ranker = random_case(seed)
    result = rf.evaluate(ranker, data, split=split, metrics=METRICS)  # type: ignore[arg-type]
    assert dict(result.metrics) == pytest.approx(by_loop(data, ranker, split, 3), rel=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_filtered_pairs_count_on_neither_side(seed: int, tmp_path: Path) -> None:
    """They are neither in the truth nor in any ranking."""
    rng = np.random.default_rng(seed)
    m, n, k = 12, 9, 3
    labels, filtered = rng.random((2, m, n)) < 0.3, rng.random((2, m, n)) < 0.2
    labels[:, 0] = np.arange(n) == 4
    filtered[:, 0, 4] = True  # so one document loses its only label
    for own, out, name, long in zip(
        labels, filtered, ("trn", "tst"), ("train", "test"), strict=True
    ):
        rows = [" ".join(f"{label}:1" for label in row.nonzero()[0]) for row in own]
        (tmp_path / f"{name}_X_Y.txt").write_text("\n".join([f"{m} {n}", *rows]) + "\n")
        (tmp_path / f"{name}_X_Xf.txt").write_text(f"{m} 1\n" + "0:1\n" * m)
        np.savetxt(tmp_path / f"filter_labels_{long}.txt", np.argwhere(out), "%d")
    data = rf.prepare(tmp_path, format="xc", validation_share=0.0)
    queries, candidates = rng.normal(size=(2 * m, 4)), rng.normal(size=(n, 4))
    tensors = {"queries": torch.tensor(queries), "candidates": torch.tensor(candidates)}
    model = Model("popularity", {}, {name: table.float() for name, table in tensors.items()})
    ranker = Ranker(model, data.queries, data.candidates, data.seen("test"))

    truth = labels[1] & ~filtered[1]
    scores = np.where(filtered[1], -np.inf, queries[m:] @ candidates.T)
    first = np.argsort(-scores, axis=1)[:, :k]
    hits = np.take_along_axis(truth, first, axis=1)
    evaluated = truth.any(axis=1)
    weights = 1 / np.log2(np.arange(2, k + 2))
    best = np.array([weights[: min(k, n_)].sum() for n_ in truth.sum(axis=1)])

    result = rf.evaluate(ranker, data, metrics=["precision@3", "recall@3", "ndcg@3"])
    assert not evaluated[0]
    assert labels[1, 0].any()
    assert result.queries == evaluated.sum()
    assert result.metrics == pytest.approx(
        {
            "precision@3": hits[evaluated].mean(),
            "recall@3": (hits.sum(axis=1)[evaluated] / truth.sum(axis=1)[evaluated]).mean(),
            "ndcg@3": ((hits @ weights)[evaluated] / best[evaluated]).mean(),
        }
    )
    assert torch.equal(
        data.train.candidate_counts(), torch.tensor((labels[0] & ~filtered[0]).sum(axis=0))
    )


def test_queries_without_a_positive_are_left_out_and_counted() -> None:
    data, ranker = random_case(0)
    result = rf.evaluate(ranker, data, metrics=["ndcg@3"])
    empty = int((data.split("test").counts() == 0).sum())
    assert empty > 0
    assert result.without_positive == empty
    assert result.queries == 17 - empty == len(result.per_query["ndcg@3"]) == len(result.rows)
    assert result["ndcg@3"] == pytest.approx(float(np.mean(result.per_query["ndcg@3"])))


def test_other_data_is_matched_by_key() -> None:
    """Shuffled and partly unknown keys: known queries keep their values."""
    data, ranker = random_case(1)
    names = {
        "queries": [f"q{i:02}" for i in range(17)],
        "candidates": [f"c{i:02}" for i in range(11)],
    }
    known = Ranker(
        ranker.model,
        Vocabulary(17, lambda: pl.Series(names["queries"])),
        Vocabulary(11, lambda: pl.Series(names["candidates"])),
        ranker.seen,
    )
    rows = []
    for number, part in enumerate((data.train, data.validation, data.test)):
        pairs = zip(part.query_of_pair().tolist(), part.candidates.tolist(), strict=True)  # type: ignore[union-attr]
        rows += [(f"q{q:02}", f"c{c:02}", number) for q, c in pairs]
    plain = _given_splits(rows)
    expected = rf.evaluate(known, plain, metrics=["ndcg@3", "recall@3"])
    more = [("a-new-query", "c01", 2), ("a-new-query", "c02", 0), ("q00", "a-new-candidate", 2)]
    actual = rf.evaluate(known, _given_splits(rows + more), metrics=["ndcg@3", "recall@3"])
    assert actual.unknown == 1
    q00 = plain.queries.keys.to_list().index("q00")
    expected_values = dict(zip(expected.rows.tolist(), expected.per_query["recall@3"], strict=True))
    found_values = dict(zip((actual.rows - 1).tolist(), actual.per_query["recall@3"], strict=True))
    n_positives = int(plain.split("test").counts()[q00])
    before = expected_values.pop(q00, 0.0)
    assert found_values.pop(q00) == pytest.approx(before * n_positives / (n_positives + 1))
    assert found_values == pytest.approx(expected_values)


def _given_splits(rows: list[tuple[str, str, int]]) -> Dataset:
    parts = [
        pl.DataFrame(
            [r[:2] for r in rows if r[2] == s], schema=["query", "candidate"], orient="row"
        )
        for s in range(3)
    ]
    return rf.prepare(train=parts[0], validation=parts[1], test=parts[2])


def test_missing_split_and_unknown_metric_are_refused() -> None:
    data, ranker = random_case(0)
    with pytest.raises(UserError, match="`split` must be validation or test, got 'train'"):
        rf.evaluate(ranker, data, split="train")
    with pytest.raises(UserError, match="`metrics` is empty"):
        rf.evaluate(ranker, data, metrics=[])
    with pytest.raises(UserError, match="no metric 'ncdg'"):
        rf.evaluate(ranker, data, metrics=["ncdg@10"])


def test_pairs_that_the_model_was_fitted_on_are_counted() -> None:
    """Other splits of the same table, and validation after a refit: the figures are too high."""
    table = pl.DataFrame(
        {
            "query": [q for q in range(20) for _ in range(8)],
            "candidate": [(q + c * c) % 23 for q in range(20) for c in range(8)],
        }
    )
    first, second = (rf.prepare(table, seed=seed) for seed in (0, 1))
    model = rf.fit("rg2-plain", first, width=4)
    assert rf.evaluate(model, first, metrics="ndcg@3").trained_on == 0
    seen = {(q, c) for q, c in pairs_of(first.seen("test"))}
    shared = len(seen & set(pairs_of(second.split("test"))))
    assert shared > 0
    assert rf.evaluate(model, second, metrics="ndcg@3").trained_on == shared
    again = rf.fit("rg2-plain", first, width=4, refit=True)
    result = rf.evaluate(again, first, split="validation", metrics="ndcg@3")
    assert result.trained_on == first.split("validation").n_pairs


def test_popularity_is_that_of_the_training_pairs() -> None:
    data, ranker = random_case(2)
    result = rf.evaluate(ranker, data, metrics=["popularity@3"])
    counts = data.split("train").candidate_counts()
    ranks = [float((counts > c).sum()) + (float((counts == c).sum()) + 1) / 2 for c in counts]
    row = int(result.rows[0])
    hidden = data.seen("test").select(torch.tensor([row]))
    ids = ranker.searcher.of_queries(torch.tensor([row]), 3, Filter(hidden)).ids[0].tolist()
    expected = sum(ranks[i] for i in ids) / len(ids)
    assert result.per_query["popularity@3"][0] == pytest.approx(expected)


@pytest.mark.parametrize("budget", [2**30, 2**8])
def test_a_query_without_a_vector_gets_the_most_popular(
    budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, ranker = random_case(3)
    queries, candidates = (ranker.model.tensors[name] for name in ("queries", "candidates"))
    queries[::2] = 0
    counts = data.split("train").candidate_counts().float()
    assert counts.argsort().tolist() != ranker.seen.candidate_counts().argsort().tolist()
    taller = torch.cat([candidates, counts[:, None]], dim=1)  # the same rankings, without zeros
    longer = torch.cat([queries, (torch.arange(17) % 2 == 0)[:, None].float()], dim=1)
    same = replace(ranker.model, tensors={"queries": longer, "candidates": taller})
    expected = by_loop(data, replace(ranker, model=same), "test", 3)
    counted = []
    count = Interactions.candidate_counts
    monkeypatch.setattr(
        Interactions, "candidate_counts", lambda pairs: counted.append(pairs) or count(pairs)
    )
    result = rf.evaluate(ranker, data, metrics=METRICS, memory_budget=budget)
    assert dict(result.metrics) == pytest.approx(expected, rel=1e-5)
    assert len(counted) == 1  # however many blocks


def test_damaged_pairs_are_refused() -> None:
    data, ranker = random_case(0)
    train = data.split("train")
    bad = train.candidates.clone()
    bad[0] = 99
    broken = replace(data, train=replace(train, candidates=bad))
    for work in (lambda: rf.evaluate(ranker, broken), lambda: rf.fit("popularity", broken)):
        with pytest.raises(UserError, match="the train pairs are damaged"):
            work()


def test_memory_does_not_grow_with_the_cut_off() -> None:
    data, ranker = random_case(0)
    deep = rf.evaluate(ranker, data, metrics=["recall@1000000"], memory_budget=2**12)
    assert deep["recall@1000000"] == 1.0
