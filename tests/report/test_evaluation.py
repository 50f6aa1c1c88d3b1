"""The report of one grader: a well-formed page that matches the evaluation."""

import json
from pathlib import Path
from typing import Any

import pytest
from html_pages import EVIL, Page
from linear_grades import LINEAR, data_of, grader_of

from rankfold import evaluate
from rankfold.data.build.column_profile import profile_of
from rankfold.methods import METHODS
from rankfold.metrics.binomial import interval
from rankfold.models.grader import Grader
from rankfold.report.evaluation import render, write


@pytest.fixture
def result(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setitem(METHODS, "linear", LINEAR)
    data = data_of()
    importance = {"by": "permutation", "columns": {"age": 0.2, EVIL: 0.1, "site": -0.01}}
    grader = grader_of(data, importance=importance)
    profile = profile_of(data.graded("train")).to_tensors()
    model = grader.model
    model.tensors.update(profile)  # type: ignore[attr-defined]
    grader = Grader(model, grader.grades, data.columns)
    how: dict[str, Any] = {"bootstrap": 20, "calibration": 5, "costs": "1,8"}
    found: dict[str, Any] = json.loads(json.dumps(evaluate(grader, data, **how).to_json()))
    return found


def test_page_has_all_that_was_measured(result: dict[str, Any]) -> None:
    page = Page(render(result, f"a model {EVIL} on data"))
    text = page.flat
    assert page.count("script") == 0
    assert EVIL in text
    for name, mean in result["metrics"].items():
        assert name in text
        assert f"{mean:.4f}" in text
    for entry in result["operating"]:
        for rates in (entry["false_positives"], entry["true_positives"]):
            assert all(f"{rate:.4f}" in text for rate in rates)
        low, high = entry["false_positive_intervals"][0]
        assert f"{low:.4f} to {high:.4f}" in text
    assert "mild or more" in text
    assert "severe or more" in text
    assert "a false alarm costs 1.0 and a miss 8.0" in text
    for column in result["drift"]:
        assert column["column"] in text
        assert f"{column['psi']:.4f}" in text
    titles = [name for name, _ in page.tags if name == "figure"]
    assert len(titles) == 2


def test_shares_have_their_exact_intervals(result: dict[str, Any]) -> None:
    from rankfold.report.evaluation import _point

    one = result["calibration"][0][2]
    point = _point(one)
    n = one["rows"]
    assert (point.low, point.high) == interval(round(one["share"] * n), n, 0.95)
    assert point.x == one["probability"]


def test_parts_that_are_missing_are_left_out(result: dict[str, Any]) -> None:
    for name in ("calibration", "cost_curves", "costs", "importance", "drift", "operating"):
        result.pop(name, None)
    page = Page(render(result, "m on d"))
    assert page.count("figure") == 0
    assert page.count("section") == 1


def test_written_page_is_the_rendered_one(result: dict[str, Any], tmp_path: Path) -> None:
    write(result, "m on d", tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text() == render(result, "m on d")
