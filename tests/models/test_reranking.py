"""Pins, boosts, quotas and diversity equal slow loops over all scores."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
import pytest
from planted import groups
from rankings import assert_same_keys, ranking_of

import rankfold as rf
from rankfold.errors import UserError
from rankfold.models.ranking import Ranking

N = 60
TABLE = pl.DataFrame(
    {
        "candidate": range(N),
        "price": [float(c % 10) for c in range(N)],
        "brand": [None if c % 5 == 4 else f"b{c % 5}" for c in range(N)],
    }
)


@pytest.fixture(scope="module")
def model() -> rf.Ranker:
    return rf.fit("puresvd", rf.prepare(groups(), candidate_features=TABLE), width=6)


def scored(model: rf.Ranker, query: int, **options: object) -> dict[int, float]:
    """All candidates that a query may get, best first."""
    ranking = model.search(query, k=N, **options)
    return dict(zip(ranking.keys[0], ranking.scores[0].tolist(), strict=False))


def check(actual: Ranking, *expected: Mapping[int, float]) -> None:
    assert_same_keys(actual, ranking_of([list(one.items()) for one in expected]))


def test_boosts_are_added_to_all_scores(model: rf.Ranker) -> None:
    boost = {"brand = 'b1'": 0.7, "price < 3": -0.2, "price < 2": 0.1}
    lists = []
    for query in (0, 7):
        scores = {
            key: score + 0.7 * (key % 5 == 1) - 0.2 * (key % 10 < 3) + 0.1 * (key % 10 < 2)
            for key, score in scored(model, query).items()
        }
        lists.append(dict(sorted(scores.items(), key=lambda one: (-one[1], one[0]))[:8]))
    check(model.search([0, 7], k=8, boost=boost), *lists)


def test_boosts_respect_filters(model: rf.Ranker) -> None:
    ranking = model.search(0, k=N, boost={"price < 3": 5.0}, where="brand = 'b2'", exclude=[2])
    assert set(ranking.keys[0]) == set(scored(model, 0, where="brand = 'b2'", exclude=[2]))
    assert [key % 10 < 3 for key in ranking.keys[0]] == sorted(
        (key % 10 < 3 for key in ranking.keys[0]), reverse=True
    )


def test_pins_come_first_even_if_seen(model: rf.Ranker) -> None:
    every = scored(model, 0, include_seen=True)
    seen = next(key for key in every if key not in scored(model, 0))
    pins = [55, seen, 55, 9_999]
    ranking = model.search(0, k=5, pin=pins)
    rest = [key for key in scored(model, 0) if key not in (55, seen)][:3]
    assert ranking.keys[0] == [55, seen, *rest]
    rounding = 1e-5 * max(map(abs, every.values()))  # scores of pins are a product of their own
    assert ranking.scores[0].tolist() == pytest.approx(
        [every[key] for key in ranking.keys[0]], abs=rounding
    )
    assert (
        model.search(0, k=5, pin=[55], exclude=[55]).keys[0]
        == model.search(0, k=5, exclude=[55]).keys[0]
    )


def test_quotas_limit_the_values_of_a_feature(model: rf.Ranker) -> None:
    chosen: list[int] = []
    for key in scored(model, 3):
        same = [other for other in chosen if other % 5 == key % 5]
        if len(same) < 2:
            chosen.append(key)
    assert len(chosen) == 10
    assert model.search(3, k=12, at_most={"brand": 2}).keys[0] == chosen
    with_pin = model.search(3, k=12, at_most={"brand": 2}, pin=[0, 5, 10]).keys[0]
    assert with_pin[:3] == [0, 5, 10]  # pins may exceed a quota, but count towards it
    assert not any(key % 5 == 0 for key in with_pin[3:])


@pytest.mark.parametrize("diversity", [0.3, 0.8])
def test_diversity_is_maximal_marginal_relevance(model: rf.Ranker, diversity: float) -> None:
    scores = scored(model, 5)
    vectors = model.model.tensors["candidates"].double().numpy()
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    low, high = min(scores.values()), max(scores.values())
    chosen: list[int] = []
    for _ in range(6):
        gains = {
            key: (1 - diversity) * (score - low) / (high - low)
            - diversity * max([float(vectors[key] @ vectors[one]) for one in chosen], default=-1)
            for key, score in scores.items()
            if key not in chosen
        }
        chosen.append(max(gains, key=lambda key: gains[key]))
    assert model.search(5, k=6, diversity=diversity).keys[0] == chosen


def test_a_list_of_several_queries_is_that_of_each(model: rf.Ranker) -> None:
    options = {"at_most": {"brand": 1}, "diversity": 0.4, "pin": [9], "boost": {"price > 7": 0.3}}
    both = model.search([1, 2], k=6, **options)
    for place, query in enumerate((1, 2)):
        assert both.keys[place] == model.search(query, k=6, **options).keys[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"diversity": 1.5}, "`diversity` must be at least 0 and at most 1"),
        ({"at_most": {"brand": 0}}, "at least 1, got 0"),
        ({"at_most": {"size": 1}}, "there is no feature 'size'"),
        ({"boost": {"prize > 1": 1.0}}, "there is no feature 'prize'"),
        ({"boost": {"price > 1": float("nan")}}, "must be from -1e30 to 1e30, got nan"),
        ({"boost": {"price > 1": 1e308}}, "must be from -1e30 to 1e30, got 1e"),
    ],
)
def test_bad_rules_are_refused(model: rf.Ranker, options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        model.search(0, **options)


def test_evaluation_judges_the_lists_of_the_rules_beside_those_by_score() -> None:
    data = rf.prepare(groups(), candidate_features=TABLE)
    model = rf.fit("puresvd", data, width=6)
    rules: dict[str, Any] = {"diversity": 0.7, "at_most": {"brand": 2}}
    result = rf.evaluate(model, data, metrics=["recall@5", "ndcg@5"], **rules)
    plain = rf.evaluate(model, data, metrics=["recall@5", "ndcg@5"])
    assert result.by_score == pytest.approx(plain.metrics)
    assert plain.by_score is None
    test = data.split("test")
    rows, found = test.query_of_pair(), []
    for query in rows.unique().tolist():
        truth = data.candidates.keys.gather(test.candidates[rows == query].numpy()).to_list()
        keys = model.search(data.queries.keys[query], k=5, **rules).keys[0]
        found.append(len({*keys} & {*truth}) / len(truth))
    assert result["recall@5"] == pytest.approx(np.mean(found))
    assert abs(result["recall@5"] - plain["recall@5"]) > 0.01
    assert result.to_polars().columns == ["metric", "value", "by_score"]
