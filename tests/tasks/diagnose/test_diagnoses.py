"""Properties of every diagnosis."""

import json
import math
import random
from dataclasses import fields
from functools import cache
from html import escape
from pathlib import Path

import polars as pl
import pytest
from linear_grades import data_of
from scored_models import model_of_scores
from siamese_samples import SHORT, topics
from siamese_samples import SMALL as SMALL_TEXTS

import rankfold as rf
from rankfold.errors import UserError
from rankfold.methods import find_method
from rankfold.models.grader import Grader
from rankfold.models.ranker import Ranker
from rankfold.report.pictures import diagnosis_svg
from rankfold.tasks.diagnose import DIAGNOSES, diagnose
from rankfold.tasks.diagnose.result import DiagnosisResult
from rankfold.types import Dataset, Interactions, Vocabulary

SMALL = {"epochs": 3, "width": 4, "batch_size": 10}
MORE: dict[str, dict[str, object]] = {
    "ranks": {**SMALL, "rows": 20},
    "whiteness": {**SMALL, "rows": 20, "window": 30},
    "surrogate": {"scores": 50},
    "convergence": {"width": 3, "sweeps": 6, "newton": 4, "adam": 5},
    "consistency": {"planted": 30},
    "generalisation": {},
    "negatives": {"width": 3, "sweeps": 3, "negatives": "1,1000"},
    "conditions": {"sigmas": 3},
    "batch-size": {"batches": "32,64", "epochs": 1, "width": 4},
    "bounds": {},
    "proposition": {**SMALL, "rows": 20, "others": 50},
    "taylor": {"queries": 20, "scales": 3},
    "limits": {"queries": 2, "batches": "8,64", "draws": 1024},
    "bias": {"queries": 2, "batches": "8,64", "draws": 1024},
}


@pytest.fixture(scope="module")
def pairs() -> Dataset:
    """Two groups of queries that choose from two groups of candidates."""
    return rf.prepare(pl.DataFrame(planted_pairs()), seed=0)


@cache
def fitted_grader() -> Grader:
    return rf.fit("cba", data_of(), **SMALL)


@cache
def fitted_labels() -> Ranker:
    return rf.fit("siamesexml", topics(), **SMALL_TEXTS, **SHORT)


def planted_pairs() -> dict[str, list[str]]:
    rng = random.Random(0)
    rows = [
        (f"q{q}", f"c{20 * (q % 2) + int(20 * rng.random() ** 2)}")
        for q in range(60)
        for _ in range(8)
    ]
    return {"query": [q for q, _ in rows], "candidate": [c for _, c in rows]}


def run(name: str, pairs: Dataset) -> DiagnosisResult:
    diagnosis = DIAGNOSES[name]
    if diagnosis.subject == "model" and diagnosis.paper.data == "interactions":
        known, model = model_of_scores(1.0)
        return diagnose(name, known, MORE[name], model=model)
    if diagnosis.paper.data == "texts":
        return diagnose(name, topics(), MORE[name], model=fitted_labels())
    if diagnosis.subject == "model":
        return diagnose(name, data_of(), MORE[name], model=fitted_grader())
    data = {"nothing": None, "graded": data_of(), "interactions": pairs}
    kind = "nothing" if diagnosis.subject == "nothing" else diagnosis.paper.data
    return diagnose(name, data[kind], MORE[name])


@pytest.mark.parametrize("name", DIAGNOSES)
def test_one_shape_for_all(name: str, pairs: Dataset) -> None:
    """A question, numbers, a sentence, charts, a document that is JSON."""
    result = run(name, pairs)
    assert json.loads(json.dumps(result.details, allow_nan=False)) == result.details
    assert DIAGNOSES[name].summary.endswith("?")
    assert result.details["diagnosis"] == name
    assert result.details["question"] == DIAGNOSES[name].summary
    assert result.details["follows"] == result.follows
    assert result.follows.endswith(".")
    assert len(result.follows) > 20
    shown = {what: figure.value for what, figure in result.figures.items()}
    assert {what: one["value"] for what, one in result.details["figures"].items()} == shown
    for figure in result.figures.values():
        assert math.isfinite(figure.value)
        if figure.low is not None:
            assert figure.low <= figure.value <= figure.high
    assert name in result.charts
    assert escape(result.follows) in result._repr_html_()
    for chart in result.charts.values():
        assert all(len(line.points) > 1 for line in chart.lines)
        assert "NaN" not in diagnosis_svg(chart)


@pytest.mark.parametrize("name", DIAGNOSES)
def test_no_setting_is_also_one_of_the_method(name: str) -> None:
    if DIAGNOSES[name].method:
        own = {field.name for field in fields(DIAGNOSES[name].config)}
        method = find_method(DIAGNOSES[name].method).config
        assert own.isdisjoint(field.name for field in fields(method))


def test_a_paper_of_the_page_is_named() -> None:
    listed = (Path(__file__).parents[3] / "docs/reference/papers.md").read_text()
    assert all(f"[{one.paper.key}]" in listed for one in DIAGNOSES.values())


def test_wrong_options_are_named() -> None:
    with pytest.raises(UserError, match="there is no diagnosis 'rank'") as caught:
        diagnose("rank", data_of())
    assert caught.value.hint == "did you mean ranks?"
    with pytest.raises(UserError, match="ranks is for the method cba, got 'ce'"):
        diagnose("ranks", data_of(), method="ce")
    with pytest.raises(UserError, match="there is no option 'windw'") as caught:
        diagnose("whiteness", data_of(), {"windw": 3})
    assert caught.value.hint == "did you mean 'window'?"
    with pytest.raises(UserError, match="there is no option 'epochs'"):
        diagnose("surrogate", options={"epochs": 3})
    with pytest.raises(UserError, match="ranks trains a model and needs data"):
        diagnose("ranks")
    with pytest.raises(UserError, match="`seed` must be at least 0, got -1"):
        diagnose("ranks", data_of(), seed=-1)


def test_pairs_are_refused() -> None:
    import torch

    pairs = Interactions(torch.tensor([0, 1]), torch.tensor([0]), None, 1)
    one = Vocabulary.numbered(1)
    with pytest.raises(UserError, match="ranks needs graded rows, but the data is interactions"):
        diagnose("ranks", Dataset("interactions", pairs, None, None, one, one))
