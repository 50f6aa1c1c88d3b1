"""Folders of models and data that were written earlier still load and give the same results."""

import json
from typing import Any

import pytest
from golden.record_folders import ANSWERS, FITTED_ON, MODELS, answers_of_data, answers_of_model

RECORDED: dict[str, dict[str, dict[str, Any]]] = json.loads(ANSWERS.read_text())


def check(answers: dict[str, Any], recorded: dict[str, Any]) -> None:
    """Keys, grades and counts are equal, scores nearly."""
    assert answers.keys() == recorded.keys()
    for name, value in recorded.items():
        is_score = name.endswith("scores")
        assert answers[name] == (pytest.approx(value, rel=1e-3, abs=1e-4) if is_score else value)


@pytest.mark.parametrize("name", MODELS)
def test_model(name: str) -> None:
    check(answers_of_model(name), RECORDED["models"][name])


@pytest.mark.parametrize("name", FITTED_ON)
def test_data(name: str) -> None:
    check(answers_of_data(name), RECORDED["data"][name])
