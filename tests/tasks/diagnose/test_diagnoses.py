"""Properties of every diagnosis."""

import json
import math
from dataclasses import fields

import pytest
from linear_grades import data_of

from rankfold.errors import UserError
from rankfold.methods.ordinal.cba import CbaConfig
from rankfold.tasks.diagnose import DIAGNOSES, diagnose
from rankfold.types import Dataset, Interactions, Vocabulary

SMALL = {"epochs": 3, "width": 4, "batch_size": 10}
MORE = {"ranks": {"rows": 20}, "whiteness": {"rows": 20, "window": 30}, "surrogate": {"scores": 50}}


@pytest.mark.parametrize("name", DIAGNOSES)
def test_results_are_json_with_charts(name: str) -> None:
    trains, more = DIAGNOSES[name].trains, MORE.get(name, {})
    result = diagnose(name, data_of() if trains else None, {**(SMALL if trains else {}), **more})
    assert json.loads(json.dumps(result.details, allow_nan=False)) == result.details
    assert result.details["diagnosis"] == name
    assert result.details["summary"] == result.summary
    assert all(math.isfinite(value) for value in result.summary.values())
    assert name in result.charts
    for chart in result.charts.values():
        assert all(len(line.points) > 1 for line in chart.lines)


@pytest.mark.parametrize("name", DIAGNOSES)
def test_no_setting_is_also_one_of_the_method(name: str) -> None:
    if DIAGNOSES[name].trains:
        own = {field.name for field in fields(DIAGNOSES[name].config)}
        assert own.isdisjoint(field.name for field in fields(CbaConfig))


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
