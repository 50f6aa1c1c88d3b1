"""Which columns a grader reads, how columns have moved, and probabilities."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import torch
from linear_grades import COLUMNS, LINEAR, NAMES, data_of, grader_of, random_rows

import rankfold as rf
from rankfold.data.build.column_profile import Profile, profile_of
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.metrics.graded import graded_mean, parse_graded
from rankfold.models.explain.grading import permutation_importance
from rankfold.models.grader import Grader
from rankfold.types import Graded, Opened


@pytest.fixture(autouse=True)
def _linear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "linear", LINEAR)


@pytest.fixture
def grader() -> Grader:
    data = data_of()
    plain = grader_of(data)
    tensors = {**plain.model.tensors, **profile_of(data.graded("train")).to_tensors()}
    return replace(plain, model=replace(plain.model, tensors=tensors))


def test_probabilities_are_the_shares_among_rows_of_similar_score(grader: Grader) -> None:
    rows = random_rows(50, 20_000)
    scores = grader.score(rows)
    p = grader.probabilities(scores)
    assert p.shape == (20_000, 3)
    assert p.sum(dim=1).sub(1).abs().max() < 1e-12
    assert p.min() >= 0
    for part in scores.argsort().split(4000):
        shares = torch.stack([(rows.grades[part] == g).double().mean() for g in range(3)])
        torch.testing.assert_close(p[part].mean(dim=0), shares, atol=0.08, rtol=0)


def test_a_shuffled_column_costs_what_it_is_worth() -> None:
    rows = random_rows(4, 3000)

    def score(some: Graded) -> torch.Tensor:
        return some.numbers[:, 0].double()

    age, dose, site = permutation_importance(score, rows, 3).tolist()
    auc = graded_mean(score(rows), rows.grades, 3, parse_graded("auc"))
    assert age == pytest.approx(auc - 0.5, abs=0.02)
    assert abs(dose) + abs(site) < 1e-12


def test_contributions_of_a_linear_model_are_its_terms(grader: Grader) -> None:
    """Weight times the distance from the mean of the column, as the bins approximate it."""
    rows = random_rows(7, 20)
    train = data_of().graded("train")
    found = grader.explain(rows)
    for column in range(2):
        expected = rows.numbers[:, column] - train.numbers[:, column].mean()
        torch.testing.assert_close(found[:, column], expected.double(), atol=0.1, rtol=0)
    expected = rows.categories[:, 0] - train.categories[:, 0].double().mean()
    torch.testing.assert_close(found[:, 2], expected.double())
    best = grader.explanations(rows)[3]
    assert [entry["column"] for entry in best] == [
        ["age", "dose", "site"][j] for j in found[3].abs().argsort(descending=True)
    ]


def test_a_method_may_explain_itself(grader: Grader, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Opened(rows=LINEAR.open(grader.model).rows, contributions=lambda rows: rows.numbers * 2)
    monkeypatch.setitem(METHODS, "linear", replace(LINEAR, open=lambda _: own))
    rows = random_rows(7, 5)
    assert torch.equal(grader.explain(rows), rows.numbers * 2)


def test_an_older_model_does_not_explain_or_compare() -> None:
    older = grader_of(data_of())
    assert older.shifts(random_rows(1)) == []
    with pytest.raises(UserError, match="does not hold what its columns"):
        older.explain(random_rows(1))


def test_a_moved_column_has_drifted(grader: Grader) -> None:
    rows = random_rows(11, 500)
    assert not any(shift.to_json()["drifted"] for shift in grader.shifts(rows))
    rows.numbers[:, 1] += 1.5
    rows.numbers[:200, 0] = torch.nan
    age, dose, site = (shift.to_json() for shift in grader.shifts(rows))
    assert (age["drifted"], dose["drifted"], site["drifted"]) == (True, True, False)
    assert (age["missing_before"], age["missing"]) == (0.0, 0.4)
    assert [age["column"], dose["column"], site["column"]] == ["age", "dose", "site"]


def test_a_profile_counts_by_bin_and_survives_saving(tmp_path: Path) -> None:
    numbers = torch.tensor([[1.0, 5.0], [2.0, 5.0], [torch.nan, 5.0], [4.0, torch.nan]])
    categories = torch.tensor([[0], [-1], [2], [2]], dtype=torch.int32)
    rows = Graded(numbers, categories, None, torch.zeros(4, dtype=torch.int64))
    profile = profile_of(rows)
    assert profile.numbers.sum(dim=1).tolist() == [4.0, 4.0]
    assert profile.numbers[:, -1].tolist() == [1.0, 1.0]
    assert profile.numbers[1].max() == 3
    assert profile.levels[0, :3].tolist() == [2, 0, -1]
    assert profile.categories[0, [0, 1, -2, -1]].tolist() == [2.0, 1.0, 0.0, 1.0]
    again = Profile.from_tensors(profile.to_tensors())
    assert again is not None
    assert torch.equal(again.numbers, profile.numbers)
    assert str(tmp_path)


def test_fitted_models_know_their_columns_and_say_more(tmp_path: Path) -> None:
    data = replace(data_of(), validation=random_rows(2, 300))
    rf.fit("ce", data, epochs=4, width=8, lr=0.02, device="cpu", out=tmp_path / "m")
    model = rf.load(tmp_path / "m")
    assert isinstance(model, Grader)
    importance = model.model.notes["importance"]
    assert importance["by"] == "permutation"
    assert list(importance["columns"])[-1] == "site"  # it says nothing
    frame = pl.DataFrame({"age": [0.0, 2.0], "dose": [0.5, 2.0], "site": ["a", "b"]})
    result = model.predict(frame, explain=True)
    assert result.columns == [
        "query", "score", "grade", *(f"probability_{name}" for name in NAMES), "explanation",
    ]  # fmt: skip
    first, second = result["explanation"].to_list()
    assert {entry["column"] for entry in first} == set(COLUMNS.numbers) | set(COLUMNS.levels)
    assert sum(e["contribution"] for e in second if e["column"] != "site") > 0
    evaluated = rf.evaluate(model, data, bootstrap=0, calibration=5, costs="1,10")
    document = evaluated.to_json()
    assert len(document["calibration_errors"]) == 2
    assert all(0 <= error < 0.15 for error in document["calibration_errors"])
    assert all(
        {"probability", "share", "score", "rows"} == set(b) for b in document["calibration"][0]
    )
    lowest = document["costs"]["thresholds"][0]
    assert lowest["cost"] <= min(lowest["none"], lowest["all"]) + 0.05
    assert [entry["column"] for entry in document["drift"]] == ["age", "dose", "site"]
