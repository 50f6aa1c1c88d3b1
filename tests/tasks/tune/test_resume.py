"""A search that was killed or interrupted is resumed; another one is refused."""

import csv
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from level_method import LEVELS, SMALL, outcomes, same_model
from planted import split_groups

import rankfold as rf
from rankfold.tasks.tune import tune
from rankfold.types import Dataset, Range


def test_a_killed_search_is_resumed(tmp_path: Path) -> None:
    pairs = pl.DataFrame({"query": [1, 1, 2, 2, 3, 3] * 9, "candidate": list(range(54))})
    rf.prepare(pairs, out=tmp_path / "data", split=(0.6, 0.2, 0.2))
    code = f"""
import os, rankfold as rf
def die(what, share):
    if "trial 3 " in what and "step" in what: os._exit(9)
rf.tune("ials", {str(tmp_path / "data")!r}, out={str(tmp_path / "t")!r}, trials=4, report=die,
        fixed={{"width": 2, "sweeps": 2}})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 9, done.stderr
    options: dict[str, Any] = {"trials": 4, "fixed": {"width": 2, "sweeps": 2}}
    tuned = tune("ials", tmp_path / "data", out=tmp_path / "t", **options)
    assert outcomes(tuned) == outcomes(
        tune("ials", tmp_path / "data", out=tmp_path / "whole", **options)
    )


def test_interrupts_wait_for_the_trial(data: Dataset, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    options: dict[str, Any] = {"space": {"level": LEVELS}, "fixed": {"fault": "interrupt"}}
    for done in (1, 2):  # the fit has one step and ends with it
        with pytest.raises(KeyboardInterrupt):
            tune("level", data, out=tmp_path / "t", trials=3, **options)
        with (tmp_path / "t" / "trials.csv").open() as file:
            assert len(list(csv.DictReader(file))) == done
    assert signal.getsignal(signal.SIGINT) is before


def test_a_missing_model_is_fitted_again(data: Dataset, tmp_path: Path) -> None:
    first = tune("ials", data, out=tmp_path / "t", trials=3, fixed=SMALL)
    for path in sorted((tmp_path / "t" / "model").iterdir()):
        path.unlink()
    again = tune("ials", data, out=tmp_path / "t", trials=3, fixed=SMALL)
    assert outcomes(again) == outcomes(first)
    assert same_model(again, first)


SEARCH: dict[str, Any] = {"trials": 1, "space": {"level": LEVELS}, "fixed": {"other": 1}}


@pytest.fixture(scope="module")
def searched(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("searched") / "t"
    tune("level", data, out=path, **SEARCH)
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, "with seed = 0, not 1"),
        ({"metric": "mrr@10"}, "with metric = ndcg@10, not mrr@10"),
        ({"space": {"level": Range(0.1, 1.0)}}, "with space: level: low = 0.0, not 0.1"),
        ({"fixed": {"other": 2}}, "with fixed: other = 1, not 2"),
    ],
)
def test_another_search_is_refused(
    data: Dataset, searched: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(rf.UserError, match="t is a search") as caught:
        tune("level", data, out=searched, **{**SEARCH, **change})
    assert message in str(caught.value)
    assert "another --out" in str(caught.value.hint)


def test_a_search_of_another_method_or_data_is_refused(data: Dataset, tmp_path: Path) -> None:
    tune("level", data, out=tmp_path / "t", trials=1, space={})
    with pytest.raises(rf.UserError, match="with method = level, not popularity"):
        tune("popularity", data, out=tmp_path / "t", trials=1)
    with pytest.raises(rf.UserError, match="with other data"):
        tune("level", split_groups(1), out=tmp_path / "t", trials=1, space={})
