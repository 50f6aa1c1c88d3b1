"""Thresholds of candidates: the written formulas, few and many queries, and every way to ask."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor

import rankfold as rf
from rankfold.errors import UserError
from rankfold.metrics.sets import SetCounts, count_sets, macro_f1, micro_f1
from rankfold.models import thresholds
from rankfold.models.ranker import Ranker
from rankfold.models.ranking import SearchSpec
from rankfold.models.thresholds import find, learn, passing
from rankfold.serve.search import answer
from rankfold.types import Dataset, Interactions, Model, TopK, from_pairs

COLOURS = ["red", "green", "blue", "grey", "black"]
PRIOR = 20.0


def lists(queries: int, n: int = 4, seed: int = 0) -> tuple[TopK, Interactions]:
    """Results of n candidates, all of them; one of score s is right with chance s ** (y + 1)."""
    rng = torch.Generator().manual_seed(seed)
    scores = torch.rand(queries, n, generator=rng)
    chances = scores ** torch.arange(1, n + 1)
    rows, columns = (torch.rand(queries, n, generator=rng) < chances).nonzero().unbind(1)
    ids = scores.argsort(dim=1, descending=True)
    return TopK(ids, scores.gather(1, ids)), from_pairs(rows, columns, None, (queries, n))


def model_of(found: TopK, truth: Interactions) -> Model:
    return Model("words", {}, learn(found, truth), {})


def results(found: TopK, truth: Interactions) -> list[tuple[int, float, bool]]:
    """(candidate, score, right) of all results, and of positives that are not among them."""
    pairs = {
        (int(row), int(one))
        for row, one in zip(truth.query_of_pair(), truth.candidates, strict=True)
    }
    out = []
    for row, (ids, scores) in enumerate(
        zip(found.ids.tolist(), found.scores.tolist(), strict=True)
    ):
        for one, score in zip(ids, scores, strict=True):
            if one >= 0:
                out.append((one, score, (row, one) in pairs))
                pairs.discard((row, one))
    return out + [(one, -math.inf, True) for _, one in pairs]


def value(every: list[tuple[int, float, bool]], one: int, at: float, goal: str) -> float:
    """The smoothed F1 or precision of a candidate at a threshold, by the written formula."""

    def counted(of: list[tuple[int, float, bool]]) -> tuple[int, int, int]:
        passed = [right for _, score, right in of if score >= at]
        return sum(passed), len(passed), sum(right for _, _, right in of)

    own = counted([result for result in every if result[0] == one])
    of_all = counted(every)
    if goal == "f1":
        added = [PRIOR * count / of_all[2] for count in of_all[:2]]
        return 2 * (own[0] + added[0]) / (own[1] + added[1] + own[2] + PRIOR)
    return (own[0] + PRIOR * of_all[0] / of_all[1]) / (own[1] + PRIOR)


@pytest.mark.parametrize("goal", ["f1", "precision=.8"])
def test_thresholds_are_those_of_the_written_formula(goal: str) -> None:
    found, truth = lists(40)
    found = TopK(found.ids[:, :3], found.scores[:, :3])  # some positives are not found
    every = results(found, truth)
    assert any(score == -math.inf for _, score, _ in every)
    tried = sorted({score for _, score, right in every if right and score > -math.inf})
    for one, threshold in enumerate(find(model_of(found, truth), goal, 4).tolist()):
        values = [value(every, one, at, goal) for at in tried]
        if goal == "f1":
            assert threshold == pytest.approx(tried[int(np.argmax(values))], abs=1e-5)
        else:
            holding = [at for at, share in zip(tried, values, strict=True) if share >= 0.8]
            assert threshold == pytest.approx(holding[0] if holding else math.inf, abs=1e-5)


def test_a_candidate_with_few_queries_has_nearly_the_common_threshold() -> None:
    """Candidate 0 is right from .9 on, the others from .5 on; candidate 4 has no query."""
    rng = torch.Generator().manual_seed(0)

    def own_threshold(queries: int) -> tuple[float, float, float]:
        candidates = torch.randint(1, 4, (3000,), generator=rng)
        candidates[:queries] = 0
        scores = torch.rand(3000, generator=rng)
        right = scores >= torch.where(candidates == 0, 0.9, 0.5)
        rows = torch.arange(3000)[right]
        truth = from_pairs(rows, candidates[right], None, (3000, 5))
        model = model_of(TopK(candidates[:, None], scores[:, None]), truth)
        found = find(model, "f1", 5).tolist()
        return found[0], found[1], found[4]

    few, usual, none = own_threshold(10)
    assert usual == pytest.approx(0.5, abs=0.02)
    assert none == pytest.approx(usual, abs=0.02)
    assert few < 0.85
    many, usual, _ = own_threshold(1000)
    assert many == pytest.approx(0.9, abs=0.02)
    assert usual == pytest.approx(0.5, abs=0.02)


def counts_at(limits: Tensor, on: tuple[TopK, Interactions]) -> SetCounts:
    return count_sets(passing(on[0], limits).ids, on[1])


def test_sets_are_better_than_by_one_threshold() -> None:
    """On other lists of the same kind; candidates differ in what a score means."""
    new = lists(2000, seed=1)
    own = counts_at(find(model_of(*lists(2000)), "f1", 4), new)
    grid = [counts_at(torch.full((4,), at), new) for at in np.linspace(0.2, 0.8, 13).tolist()]
    assert micro_f1(own) > max(micro_f1(one) for one in grid)
    assert macro_f1(own) > max(macro_f1(one) for one in grid)


def test_a_precision_holds_on_average() -> None:
    """On other lists of the same kind, over ten models."""
    new, total = lists(4000, seed=99), torch.zeros(2, 4)
    for seed in range(10):
        counts = counts_at(find(model_of(*lists(600, seed=seed)), "precision=.8", 4), new)
        total += torch.stack([counts.right, counts.returned])
    right, returned = total
    assert float(right.sum() / returned.sum()) == pytest.approx(0.8, abs=0.02)
    torch.testing.assert_close(right / returned, torch.full((4,), 0.8), atol=0.05, rtol=0)
    assert (returned > 10 * 400).all()


def test_no_text_without_a_known_word_passes() -> None:
    found = TopK(torch.tensor([[1, 0, -1]] * 2), torch.tensor([[0.9, 0.1, -torch.inf]] * 2))
    limits = torch.tensor([0.05, 0.95])
    ids, scores = passing(found, limits)
    assert ids.tolist() == [[0, -1, -1]] * 2
    assert scores[:, 0].tolist() == pytest.approx([0.1, 0.1])
    assert passing(found, limits, torch.tensor([True, False])).ids.tolist() == [
        [0, -1, -1],
        [-1] * 3,
    ]


@pytest.mark.parametrize(
    "goal", ["f2", "precision", "precision=", "precision=2", "precision=0", ""]
)
def test_other_goals_are_refused(goal: str) -> None:
    with pytest.raises(UserError, match="`thresholds` must be f1, or precision="):
        find(model_of(*lists(40)), goal, 4)


def test_a_precision_that_nothing_holds_is_refused() -> None:
    found, _ = lists(200)
    truth = from_pairs(torch.arange(200), found.ids[:, 1], None, (200, 4))
    with pytest.raises(UserError, match=r"no threshold holds a precision of 0.95.*highest is"):
        find(model_of(found, truth), "precision=.95", 4)
    assert learn(TopK(found.ids[:, :0], found.scores[:, :0]), truth) == {}


# ---------------------------------------------------------------------------------- a model


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Texts name one of their two colours in two of three cases."""
    rng = np.random.default_rng(0)
    own = rng.integers(0, 5, (400, 2))
    said = np.where(rng.random(400) < 0.67, own[:, 0], rng.integers(0, 5, 400))
    texts = [f"a {COLOURS[colour]} thing {row % 7}" for row, colour in enumerate(said)]
    labels = [sorted({COLOURS[one] for one in pair}) for pair in own]
    table = pl.DataFrame({"id": range(400), "text": texts, "labels": labels})
    out = tmp_path_factory.mktemp("data") / "colours"
    return rf.prepare(table, format="texts", split="queries:0.5,0.3,0.2", out=out)


@pytest.fixture(scope="module")
def model(data: Dataset) -> Ranker:
    fitted = rf.fit("siamesexml", data, width=16, joint_epochs=1)
    assert isinstance(fitted, Ranker)
    return fitted


TEXTS = ["a blue thing", "zzz", "grey and black"]


def test_every_way_to_ask_gives_the_same_sets(model: Ranker, tmp_path: Path) -> None:
    limits, whole = model.searcher.thresholds("f1"), model.search(text=TEXTS, k=5)
    places = model.candidates.find(COLOURS).tolist()
    at_least = dict(zip(COLOURS, limits[places].tolist(), strict=True))
    wanted: list[list[Any]] = [
        [key for key, score in zip(one.keys, one.scores, strict=True) if score >= at_least[key]]
        for one in whole
    ]
    wanted[1] = []  # no known word
    assert 1 <= len(wanted[0]) < 5
    ranking = model.search(text=TEXTS, k=5, thresholds="f1")
    assert ranking.keys == wanted
    assert ranking.probabilities is not None
    model.save(tmp_path / "model")
    table = pl.DataFrame({"text": TEXTS})
    written = rf.predict(tmp_path / "model", table, thresholds="f1").to_polars()
    assert written.select("query", "candidate").rows() == [
        (row, key) for row, keys in enumerate(wanted) for key in keys
    ]
    (document,) = answer(model, [SearchSpec("text", TEXTS, 5, thresholds="f1")])
    assert isinstance(document, bytes)
    lists_of = [one["candidates"] for one in json.loads(document)["results"]]
    assert [[entry["candidate"] for entry in one] for one in lists_of] == wanted


def test_evaluation_measures_what_is_returned(model: Ranker, data: Dataset) -> None:
    result = rf.evaluate(model, data)
    assert result.to_json()["thresholds"] == "f1"
    truth = data.split("test")
    rows = truth.counts().nonzero().flatten().tolist()
    keys = data.queries.keys.gather(rows)
    ranking = model.search(list(keys), k=10, thresholds="f1")
    ids = [model.candidates.find(found).tolist() for found in ranking.keys]
    padded = torch.tensor([one + [-1] * (5 - len(one)) for one in ids])
    counts = count_sets(padded, truth.select(torch.tensor(rows)))
    assert result["micro-f1@10"] == pytest.approx(float(micro_f1(counts)))
    assert result["macro-f1@10"] == pytest.approx(float(macro_f1(counts)))
    strict = rf.evaluate(model, data, metrics=["micro-precision@10"], thresholds="precision=.8")
    loose = rf.evaluate(model, data, metrics=["micro-precision@10"], thresholds="precision=.5")
    assert strict["micro-precision@10"] > loose["micro-precision@10"]


def test_thresholds_follow_the_candidates(model: Ranker) -> None:
    limits = dict(zip(model.candidates.keys, model.searcher.thresholds("f1").tolist(), strict=True))
    more = pl.DataFrame({"label": ["azure"], "text": ["blue sky"]})
    wider = model.extend(more, key_column="label", text_column="text")
    found = dict(zip(wider.candidates.keys, wider.searcher.thresholds("f1").tolist(), strict=True))
    common = float(find(model.model, "f1", 6)[5])  # of a candidate that was never kept
    assert found == pytest.approx({**limits, "azure": common})
    fewer = wider.forget(candidates=["black"])
    kept = fewer.model.tensors["thresholds.candidates"].unique()
    assert set(fewer.candidates.take(kept.long())) == {"red", "green", "blue", "grey"}


def test_a_refit_keeps_them(data: Dataset) -> None:
    fitted = rf.fit("text-neighbours", data, refit=True)
    plain = rf.fit("text-neighbours", data)
    for name in thresholds.tensors_of(plain.model):
        assert torch.equal(fitted.model.tensors[name], plain.model.tensors[name])
    assert len(thresholds.tensors_of(plain.model)) == 3


def test_models_without_thresholds_refuse(model: Ranker, data: Dataset) -> None:
    popular = rf.fit("popularity", data)
    assert isinstance(popular, Ranker)
    with pytest.raises(UserError, match="no thresholds"):
        popular.search([0], thresholds="f1")
    with pytest.raises(UserError, match="no thresholds"):
        rf.evaluate(popular, data, metrics=["micro-f1@10"])
    with pytest.raises(UserError, match="rules that change scores"):
        model.search(text="grey", pin=["red"], thresholds="f1")
    with pytest.raises(UserError, match="which rules change"):
        rf.evaluate(model, data, metrics=["micro-f1@10"], diversity=0.5)
