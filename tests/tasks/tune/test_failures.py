"""Failed trials, wrong options, and folders that cannot be used."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from level_method import LEVELS, outcomes

import rankfold as rf
from rankfold import storage
from rankfold.tasks.tune import tune
from rankfold.types import Dataset, Range


def test_two_at_once_in_one_folder_are_refused(data: Dataset, tmp_path: Path) -> None:
    options: dict[str, Any] = {"space": {"level": LEVELS}, "trials": 1}
    (tmp_path / "t").mkdir()
    with (
        storage.locked(tmp_path / "t"),
        pytest.raises(rf.UserError, match=f"process {os.getpid()} is writing") as caught,
    ):
        tune("level", data, out=tmp_path / "t", **options)
    assert "--out" in str(caught.value.hint)
    assert not list((tmp_path / "t").iterdir())
    assert len(tune("level", data, out=tmp_path / "t", **options).trials) == 1


def test_a_failed_trial_does_not_end_the_search(data: Dataset, tmp_path: Path) -> None:
    space = {"level": LEVELS}
    tuned = tune("level", data, out=tmp_path / "t", trials=6, space=space, fixed={"fault": "low"})
    assert len(tuned.trials) == 6
    for trial in tuned.trials:
        failed = trial.settings["level"] < 0.5
        assert trial.state == ("failed" if failed else "complete")
        assert trial.message == (f"level {trial.settings['level']} is too low" if failed else None)
    assert any(trial.state == "failed" for trial in tuned.trials)
    again = tune("level", data, out=tmp_path / "t", trials=6, space=space, fixed={"fault": "low"})
    assert outcomes(again) == outcomes(tuned)  # they are not run again


@pytest.mark.parametrize(
    ("fault", "message"),
    [("refused", "level 0.5 is too low"), ("nan", "the loss became nan at step 1")],
)
def test_all_fail(data: Dataset, tmp_path: Path, fault: str, message: str) -> None:
    options: dict[str, Any] = {"trials": 3, "space": {"level": LEVELS}, "fixed": {"fault": fault}}
    with pytest.raises(rf.UserError, match=message) as caught:
        tune("level", data, out=tmp_path / "t", **options)
    assert "3 of 3 trials failed" in str(caught.value.hint)


@pytest.mark.parametrize(("fault", "made"), [("nan", 10), ("refused", 14)])
def test_equal_failures_end_the_search_early(
    data: Dataset, tmp_path: Path, fault: str, made: int
) -> None:
    """Refused trials name their level, so their messages differ."""
    space = {"level": Range(0.0, 1.0)}
    with pytest.raises(rf.UserError) as caught:
        tune("level", data, out=tmp_path / "t", trials=14, space=space, fixed={"fault": fault})
    assert f"{made} of {made} trials failed" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 0}, "`trials` must be at least 1, got 0"),
        ({"space": "wide"}, "there is no space 'wide'"),
        ({"space": {"depth": LEVELS}}, "there is no option 'depth'"),
        ({"fixed": {"depth": 3}}, "there is no option 'depth'"),
        ({"fixed": {"patience": 3}}, "there is no option 'patience'"),
        ({"fixed": {"level": "high"}}, "`level` must be a number, got 'high'"),
        ({"metric": "accuracy"}, "accuracy"),
        ({"tries": 3}, "there is no option 'tries'"),
    ],
)
def test_wrong_options_are_refused_at_once(
    data: Dataset, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(rf.UserError, match=message):
        tune("level", data, out=tmp_path / "t", **options)
    assert not (tmp_path / "t").exists()


def test_data_without_validation_is_refused(data: Dataset, tmp_path: Path) -> None:
    with pytest.raises(rf.UserError, match="needs a validation split") as caught:
        tune("ials", replace(data, validation=None), out=tmp_path / "t")
    assert "--validation-share" in str(caught.value.hint)
    with pytest.raises(rf.UserError, match="takes graded rows, but the data is interactions"):
        tune("ce", data, out=tmp_path / "t")


def test_a_folder_with_other_files_is_refused(data: Dataset, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(rf.UserError, match="holds files that are not of a search"):
        tune("level", data, out=tmp_path, trials=1)
    with pytest.raises(rf.UserError, match="cannot write into"):
        tune("level", data, out=tmp_path / "notes.txt", trials=1)
    with pytest.raises(rf.UserError, match="there is no folder"):
        tune("level", data, out=tmp_path / "a" / "b", trials=1)
    assert list(tmp_path.iterdir()) == [tmp_path / "notes.txt"]


def test_a_damaged_study_is_named(data: Dataset, tmp_path: Path) -> None:
    (tmp_path / "study.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(rf.UserError, match=r"cannot use .*study\.db"):
        tune("level", data, out=tmp_path, trials=1)


def test_without_optuna(data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(rf.UserError, match="needs optuna") as caught:
        tune("level", data, out=tmp_path / "t", trials=1)
    assert caught.value.hint == "pip install 'rankfold[tune]'"
