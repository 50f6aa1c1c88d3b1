"""Propensity-scored metrics, and results by frequency, equal loops over queries."""

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from random_rankers import pairs_of, random_case, row_of

import rankfold as rf
from rankfold.errors import UserError
from rankfold.metrics.strata import frequency_groups
from rankfold.models.ranker import Ranker
from rankfold.types import Dataset, Interactions, Vocabulary, from_pairs

PS = ["psp@3", "psn@3", "psp-raw@3", "psn-raw@3"]


def weights_by_loop(data: Dataset, a: float, b: float) -> list[float]:
    """1/p of each candidate of the data."""
    rows = [row_of(data.train, query) for query in range(len(data.queries))]
    counts = [sum(c in row for row in rows) for c in range(len(data.candidates))]
    scale = (math.log(sum(bool(row) for row in rows)) - 1) * (b + 1) ** a
    return [1 + scale * (count + b) ** -a for count in counts]


def propensity_scored_by_loop(
    data: Dataset, ranker: Ranker, weights: list[float], k: int, group: set[int]
) -> dict[str, float]:
    """On test, with only the positives of a group; ratios of sums over queries."""
    scores = (ranker.model.tensors["queries"] @ ranker.model.tensors["candidates"].T).tolist()
    sums, queries = dict.fromkeys(("psp", "psp best", "psn", "psn best"), 0.0), 0
    for query in range(len(data.queries)):
        truth = set(row_of(data.test, query)) & group
        if not truth:
            continue
        queries += 1
        seen = {*row_of(data.train, query), *row_of(data.validation, query)}
        left = [c for c in range(len(data.candidates)) if c not in seen]
        ranked = sorted(left, key=lambda c: (-scores[query][c], c))[:k]
        got = [weights[c] if c in truth else 0.0 for c in ranked]
        best = sorted((weights[c] for c in truth), reverse=True)[:k]
        discount = sum(1 / math.log2(r + 2) for r in range(len(best)))
        for name, gains in (("", got), (" best", best)):
            sums["psp" + name] += sum(gains) / k
            dcg = sum(gain / math.log2(r + 2) for r, gain in enumerate(gains))
            sums["psn" + name] += dcg / discount
    return {
        f"psp@{k}": sums["psp"] / sums["psp best"],
        f"psn@{k}": sums["psn"] / sums["psn best"],
        f"psp-raw@{k}": sums["psp"] / queries,
        f"psn-raw@{k}": sums["psn"] / queries,
    }


@pytest.mark.parametrize("budget", [2**30, 2**8])
@pytest.mark.parametrize("given", [(0.55, 1.5), (0.6, 2.6)])
def test_propensity_scores_are_ratios_of_sums_over_all_blocks(
    given: tuple[float, float], budget: int
) -> None:
    data, ranker = random_case(4)
    result = rf.evaluate(ranker, data, metrics=PS, propensity=given, memory_budget=budget)
    weights = weights_by_loop(data, *given)
    expected = propensity_scored_by_loop(data, ranker, weights, 3, set(range(11)))
    assert dict(result.metrics) == pytest.approx(expected, rel=1e-5)
    for name in PS:
        assert result[name] == pytest.approx(float(np.mean(result.per_query[name])))
    assert result.to_json()["propensity"] == {"A": given[0], "B": given[1]}


def test_propensities_have_the_papers_defaults_and_are_reported_only_where_used() -> None:
    data, ranker = random_case(4)
    assert rf.evaluate(ranker, data, metrics="psp@3").propensity == (0.55, 1.5)
    plain = rf.evaluate(ranker, data, metrics="ndcg@3", propensity=(1.0, 1.0))
    assert plain.propensity is None
    assert "propensity" not in plain.to_json()
    with pytest.raises(UserError, match="got A = 1, B = 0"):
        rf.evaluate(ranker, data, propensity=(1.0, 0.0))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("budget", [2**30, 2**8])
def test_strata_equal_a_loop(seed: int, budget: int) -> None:
    data, ranker = random_case(seed)
    data = without_in_train(data, {0, 7})
    metrics = [*PS, "recall@3", "popularity@3", "coverage@3"]
    result = rf.evaluate(ranker, data, metrics=metrics, strata=True, memory_budget=budget)
    assert [stratum.name for stratum in result.strata] == ["head", "torso", "tail", "unseen"]
    counts, weights = data.split("train").candidate_counts(), weights_by_loop(data, 0.55, 1.5)
    groups = frequency_groups(counts)
    for number, stratum in enumerate(result.strata):
        members = set((groups == number).nonzero().flatten().tolist())
        assert stratum.candidates == len(members)
        assert stratum.train_pairs == sum(int(counts[c]) for c in members)
        rows = [set(row_of(data.test, query)) & members for query in range(len(data.queries))]
        assert stratum.queries == sum(map(bool, rows)) > 0
        expected = propensity_scored_by_loop(data, ranker, weights, 3, members)
        actual = dict(stratum.metrics)
        pairs = [pair for pair in pairs_of(data.split("test")) if pair[1] in members]
        alone = replace(data, test=_from(pairs, data))
        expected["recall@3"] = rf.evaluate(ranker, alone, metrics="recall@3")["recall@3"]
        assert actual == pytest.approx(expected, rel=1e-5)  # no metric that ignores the truth
    assert result.to_json()["strata"][3] == {
        "name": "unseen",
        "candidates": 2,
        "train_pairs": 0,
        "queries": result.strata[3].queries,
        "metrics": dict(result.strata[3].metrics),
    }


def without_in_train(data: Dataset, candidates: set[int]) -> Dataset:
    pairs = [pair for pair in pairs_of(data.split("train")) if pair[1] not in candidates]
    return replace(data, train=_from(pairs, data))


def _from(pairs: list[tuple[int, int]], data: Dataset) -> Interactions:
    table = torch.tensor(pairs)
    shape = (len(data.queries), len(data.candidates))
    return from_pairs(table[:, 0], table[:, 1], None, shape)


def test_a_group_without_queries_has_no_values() -> None:
    data, ranker = random_case(0)
    groups = frequency_groups(data.split("train").candidate_counts())
    pairs = [pair for pair in pairs_of(data.split("test")) if groups[pair[1]] != 2]
    result = rf.evaluate(ranker, replace(data, test=_from(pairs, data)), strata=True)
    names = [stratum.name for stratum in result.strata]
    assert names == ["head", "torso", "tail"]  # every candidate is seen
    assert result.strata[2].queries == 0 < result.strata[2].candidates
    assert dict(result.strata[2].metrics) == {}
    assert result.to_json()["strata"][2]["metrics"] == {}


def test_frequencies_come_from_the_evaluated_data() -> None:
    """A candidate that the model does not know keeps its training count, and its group."""
    data, ranker = random_case(1)
    known = Ranker(
        replace(ranker.model, tensors={**ranker.model.tensors, "candidates": torch.zeros(9, 4)}),
        ranker.queries,
        Vocabulary(9, lambda: pl.int_range(2, 11, eager=True)),  # not 0 and 1
        renumbered(ranker.seen),
    )
    given = rf.evaluate(known, data, metrics=["psp@3", "psp-raw@3"], strata=True)
    weights = torch.tensor(weights_by_loop(data, 0.55, 1.5))
    best = [
        sum(sorted((float(weights[c]) for c in row_of(data.test, int(row))), reverse=True)[:3]) / 3
        for row in given.rows
    ]
    assert given["psp-raw@3"] > 0
    assert given["psp-raw@3"] / given["psp@3"] == pytest.approx(float(np.mean(best)), rel=1e-5)
    whole = rf.evaluate(ranker, data, metrics="psp@3", strata=True)
    for ours, theirs in zip(given.strata, whole.strata, strict=True):
        for name in ("name", "candidates", "train_pairs", "queries"):
            assert getattr(ours, name) == getattr(theirs, name)


def renumbered(seen: Interactions) -> Interactions:
    pairs = torch.tensor([(q, c - 2) for q, c in pairs_of(seen) if c >= 2])
    return from_pairs(pairs[:, 0], pairs[:, 1], None, (seen.n_queries, 9))
