"""A blend of two fitted models is the model that ``blend`` fits with their settings."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from planted import groups, split_groups
from rankings import assert_same_keys
from torch import Tensor

import rankfold as rf
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.models.ranker import Ranker
from rankfold.tasks.fit import fit
from rankfold.types import Dataset, Interactions

Models = dict[str, Ranker]


def fitted(method: str, data: Any, **options: Any) -> Ranker:
    model = fit(method, data, **options)
    assert isinstance(model, Ranker)
    return model


@pytest.fixture(scope="module")
def data() -> Dataset:
    return split_groups()


@pytest.fixture(scope="module")
def models(data: Dataset) -> Models:
    return {"rg2": fitted("rg2", data, width=6), "ease": fitted("ease", data)}


def all_scores(ranker: Ranker, rows: Interactions) -> Tensor:
    scores = METHODS["blend"].open(ranker.model).scores
    assert scores is not None
    return scores(rows)


def test_blend_of_models_is_a_fit_of_both(data: Dataset, models: Models) -> None:
    blended, expected = rf.blend([*models.values()], data), fitted("blend", data, width=6)
    assert {**blended.model.config, "width": 6} == expected.model.config
    assert blended.model.notes["points"] == expected.model.notes["points"]
    assert blended.model.notes["data"] == data.fingerprint
    rows = data.split("train")
    torch.testing.assert_close(all_scores(blended, rows), all_scores(expected, rows))
    assert torch.equal(blended.seen.candidates, expected.seen.candidates)


def test_a_fit_with_its_settings_is_the_blend(data: Dataset, models: Models) -> None:
    blended = rf.blend([models["ease"], fitted("popularity", data)], data, share=0.2)
    expected = fitted("blend", data, **blended.model.config)
    rows = data.split("train")
    torch.testing.assert_close(all_scores(blended, rows), all_scores(expected, rows))


def test_order_of_the_models_is_that_of_the_parts(data: Dataset, models: Models) -> None:
    blended = rf.blend([models["ease"], models["rg2"]], data, share=0.3)
    config = blended.model.config
    assert (config["first"], config["second"], config["share"]) == ("ease", "rg2", 0.3)
    other = rf.blend([models["rg2"], models["ease"]], data, share=0.7)
    rows = data.split("train")
    torch.testing.assert_close(all_scores(blended, rows), all_scores(other, rows))


def test_blend_of_folders_is_saved_and_loaded(
    data: Dataset, models: Models, tmp_path: Path
) -> None:
    for name, one in models.items():
        one.save(tmp_path / name)
    blended = rf.blend([tmp_path / name for name in models], data, out=tmp_path / "both")
    again = rf.load(tmp_path / "both")
    assert isinstance(again, Ranker)
    keys = data.queries.keys.to_list()
    assert_same_keys(again.search(keys, k=5), blended.search(keys, k=5))
    assert_same_keys(
        blended.search(keys, k=5), rf.blend([*models.values()], data).search(keys, k=5)
    )
    assert not (tmp_path / "both.checkpoint").exists()


def test_sweeps_of_a_model_are_those_that_validation_chose(data: Dataset) -> None:
    ials = fitted("ials", data, width=4, reg=0.01, background=0.1)
    config = rf.blend([ials, fitted("popularity", data)], data).model.config
    chosen = ials.model.notes["chosen"]
    assert chosen < ials.model.config["sweeps"]
    assert json.loads(config["settings"])["ials"]["sweeps"] == chosen


def test_metric_chooses_the_share(data: Dataset, models: Models) -> None:
    blended = rf.blend([*models.values()], data, metric="recall@2")
    assert blended.model.notes["metric"] == "recall@2"
    scores = {point["share"]: point["score"] for point in blended.model.notes["points"]}
    ease = rf.blend([*models.values()], data, share=1.0)
    found = rf.evaluate(ease, data, split="validation", metrics="recall@2")["recall@2"]
    assert scores[1.0] == pytest.approx(found)


def test_refitted_models_need_a_share(data: Dataset, models: Models) -> None:
    refitted = [fitted("rg2", data, width=6, refit=True), fitted("ease", data, refit=True)]
    for nothing in (None, "none"):
        with pytest.raises(UserError, match="so these cannot choose the share") as caught:
            rf.blend(refitted, data, share=nothing)  # type: ignore[arg-type]
        assert "share" in caught.value.hint
    with pytest.raises(
        UserError, match="the rg2 model was fitted on train and validation"
    ) as caught:
        rf.blend([refitted[0], models["ease"]], data, share=0.4)
    assert "the ease model on train alone" in str(caught.value)
    blended = rf.blend(refitted, data, share=0.4)
    both = data.split("train").union(data.split("validation"))
    assert blended.model.notes["refit"]
    assert torch.equal(blended.model.tensors["candidates_of_queries"], both.candidates)
    whole = replace(data, train=both, validation=None)
    expected = rf.blend([replace_notes(one, refit=False) for one in refitted], whole, share=0.4)
    torch.testing.assert_close(all_scores(blended, both), all_scores(expected, both))


def replace_notes(ranker: Ranker, **notes: Any) -> Ranker:
    return replace(ranker, model=replace(ranker.model, notes={**ranker.model.notes, **notes}))


def test_without_validation_both_count_the_same() -> None:
    pairs = ([1, 2, 3, 1, 2], [7, 7, 7, 5, 6])
    blended = rf.blend([fitted("ease", pairs), fitted("popularity", pairs)], pairs)
    assert blended.model.config["share"] == 0.5
    assert blended.model.notes["chosen_by"] == "the defaults"


def test_models_of_other_pairs_are_refused(data: Dataset, models: Models, tmp_path: Path) -> None:
    fewer = rf.prepare(groups(n=50))
    fitted("ease", fewer, out=tmp_path / "narrow")
    with pytest.raises(UserError, match="narrow and the data have different candidates"):
        rf.blend([models["rg2"], tmp_path / "narrow"], data)
    with pytest.raises(UserError, match="the ease model and the data have different queries"):
        rf.blend([models["rg2"], fitted("ease", rf.prepare(groups(m=110)))], data)
    other = rf.prepare(groups(), seed=1)
    with pytest.raises(UserError, match="the rg2 model was fitted on other data") as caught:
        rf.blend([*models.values()], other)
    assert "fit both models on" in caught.value.hint


def test_changed_models_are_refused(data: Dataset, models: Models) -> None:
    key, best = data.queries.keys[0], data.candidates.keys[:3].to_list()
    grown, fewer = models["ease"].add(([key] * 3, best)), models["ease"].forget([key])
    for changed in (grown, fewer):
        with pytest.raises(UserError, match="the ease model was changed after its fit"):
            rf.blend([models["rg2"], changed], data)


def test_methods_that_cannot_be_blended_are_refused(data: Dataset, models: Models) -> None:
    rg2, ease = models.values()
    blended = rf.blend([rg2, ease], data, share=0.5)
    bpr = fitted("bpr", data, width=2, epochs=1)
    for model, message in (
        (rg2, "two methods, got rg2 twice"),
        (blended, "blend cannot be blended"),
        (bpr, "bpr cannot be blended: it does not answer histories"),
    ):
        with pytest.raises(UserError, match=message):
            rf.blend([rg2, model], data)


def test_models_that_grade_are_refused(data: Dataset, models: Models) -> None:
    rows = pl.DataFrame({"size": range(24), "grade": [0, 1] * 12})
    grader = fit("ce", rf.prepare(rows, format="features", grade_column="grade"), epochs=1)
    with pytest.raises(UserError, match="the ce model grades rows and cannot be blended"):
        rf.blend([models["rg2"], grader], data)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"first": "rg2"}, "`first` is not an option"),
        ({"refit": True}, "`refit` is not an option"),
        ({"rank": 3}, "no option 'rank'"),
        ({"share": 2}, "`share` must be at least 0 and at most 1"),
    ],
)
def test_wrong_options_are_refused(
    data: Dataset, models: Models, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        rf.blend([*models.values()], data, **options)


def test_two_models_are_needed(data: Dataset, models: Models) -> None:
    with pytest.raises(UserError, match="needs two models, got 1"):
        rf.blend([models["rg2"]], data)
