"""A comparison of tuned methods: the same budget for each."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from compared_methods import timeless
from planted import split_groups

import rankfold as rf
from rankfold.errors import UserError
from rankfold.tasks.compare import runner
from rankfold.types import Dataset


def by_name(results: dict[str, Any]) -> dict[str, Any]:
    return {method["name"]: method for method in results["methods"]}


# ---------------------------------------------------------------------------------- tuning


def test_each_method_is_tuned_with_the_same_budget_and_once(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict[str, Any]] = []

    def tune(method: str, _data: Dataset, **how: Any) -> Any:
        calls.append({"method": method, **how})
        states = ("complete", "pruned", "failed", "complete")
        trials = [SimpleNamespace(state=state, seconds=0.5) for state in states]
        settings = {**how["fixed"], **({"reg": 7.0} if method == "ease" else {})}
        return SimpleNamespace(settings=settings, score=0.5, trials=trials, model=None)

    monkeypatch.setattr(runner, "tune", tune)
    monkeypatch.setattr("rankfold.tasks.compare.plan.find_spec", lambda _name: object())
    how: dict[str, Any] = {"trials": 4, "settings": {"wrmf": {"width": 4, "sweeps": 2}}}
    results = rf.compare(data, "ease,wrmf@3", out=tmp_path / "out", **how)
    assert [(c["method"], c["trials"], c["budget"], c["seed"]) for c in calls] == [
        ("ease", 4, None, 0),
        ("wrmf", 4, None, 3),
    ]
    assert calls[1]["fixed"] == {"width": 4, "sweeps": 2}
    assert all(call["metric"] == "ndcg@10" for call in calls)
    ease, wrmf = results["methods"]
    assert ease["settings"]["reg"] == 7.0
    assert wrmf["settings"]["width"] == 4
    assert ease["trials"] == {"done": 2, "pruned": 1, "failed": 1, "seconds": 2.0}
    assert results["budget"] == {"trials": 4, "seconds": None}
    again = rf.compare(data, "ease,wrmf@3", out=tmp_path / "out", **how)
    assert len(calls) == 2
    assert again == results
    with pytest.raises(UserError, match="with trials = 4, not 5"):
        rf.compare(data, "ease,wrmf@3", out=tmp_path / "out", **{**how, "trials": 5})


def test_a_missing_tuning_library_is_refused_before_the_work(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankfold.tasks.compare.plan.find_spec", lambda _name: None)
    with pytest.raises(UserError, match="optuna") as caught:
        rf.compare(data, "ease", out=tmp_path / "out", budget="10s")
    assert "rankfold[tune]" in caught.value.hint
    assert not (tmp_path / "out").exists()


def test_a_search_of_real_trials(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    both = [rf.compare(data, "ials,popularity", out=tmp_path / n, trials=3) for n in "ab"]
    assert timeless(both[0]) == timeless(both[1])
    trials = both[0]["methods"][0]["trials"]
    assert trials["done"] + trials["pruned"] == 3
    assert not (tmp_path / "a/runs/ials/tuning/model").exists()


def test_a_model_left_by_another_entry_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between fit and test, then started again with another method under the name."""
    data = split_groups()
    test = runner._test_ranker

    def cut_off(*_given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "_test_ranker", cut_off)
    with pytest.raises(KeyboardInterrupt):
        rf.compare(data, "a=puresvd", settings={"a": {"width": 2}}, out=tmp_path / "c")
    monkeypatch.setattr(runner, "_test_ranker", test)
    results = rf.compare(data, "a=ials", settings={"a": {"width": 3}}, out=tmp_path / "c")
    (row,) = results["methods"]
    assert row["error"] is None
    assert row["settings"]["width"] == 3
    assert "sweeps" in row["settings"]
