"""A full disk is one error with the path and the space; nothing of it is remembered.

A limit on the size of files stands for the full disk: it also binds the libraries that write.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from disk_calls import files_no_larger_than

import rankfold as rf
from rankfold.errors import DiskError
from rankfold.models.index import add_index
from rankfold.tasks.export import export
from rankfold.tasks.predict import predict
from rankfold.tasks.tune import tune
from rankfold.types import Range

LIMIT = 20_000


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 1000, (20_000, 2))
    table = pl.DataFrame(pairs, schema=["query", "candidate"])
    table.write_csv(home / "rows.csv")
    table.select("query").write_csv(home / "queries.csv")
    rf.prepare(table, out=home / "data")
    rf.fit("ials", home / "data", out=home / "model", width=16, sweeps=1)
    (home / "tmp").mkdir()
    return home


COMMANDS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "prepare": (lambda home: rf.prepare(home / "rows.csv", out=home / "new"), "tmp"),
    "prepare a table": (
        lambda home: rf.prepare(pl.read_csv(home / "rows.csv"), out=home / "new"),
        "tmp",
    ),
    "fit": (lambda home: rf.fit("ials", home / "data", out=home / "new", width=16), "new"),
    "index": (lambda home: add_index(home / "model", "hnsw"), "model"),
    "export": (lambda home: export(rf.load(home / "model"), home / "new"), "new"),
    "export arrays": (
        lambda home: export(rf.load(home / "model"), home / "new", format="npy"),
        "new",
    ),
    "predict": (
        lambda home: predict(rf.load(home / "model"), home / "queries.csv", home / "new.parquet"),
        "",
    ),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_is_one_error(home: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run, place = COMMANDS[name]
    monkeypatch.setattr(tempfile, "tempdir", str(home / "tmp"))
    before = sorted(home.rglob("*"))
    with files_no_larger_than(LIMIT), pytest.raises(DiskError) as caught:
        run(home)
    assert str(caught.value).startswith(f"cannot write {home / place}")
    assert "File too large" in str(caught.value)
    assert " free; " in caught.value.hint
    assert sorted(home.rglob("*")) == before


def test_a_model_says_how_much_space_it_needs(home: Path) -> None:
    with files_no_larger_than(LIMIT), pytest.raises(DiskError) as caught:
        rf.load(home / "model").save(home / "new")
    assert caught.value.hint.startswith("2")
    assert "KiB needed, " in caught.value.hint


def test_a_trial_that_met_a_full_disk_is_run_again(home: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"trials": 1, "space": {"reg": Range(0.01, 0.1)}}
    options["fixed"] = {"width": 16, "sweeps": 1}
    whole = tune("ials", home / "data", out=tmp_path / "whole", **options)
    size = max(file.stat().st_size for file in (tmp_path / "whole").iterdir())  # of the study
    assert any(file.stat().st_size > size for file in (tmp_path / "whole/model").iterdir())
    with files_no_larger_than(size), pytest.raises(DiskError):
        tune("ials", home / "data", out=tmp_path / "full", **options)
    again = tune("ials", home / "data", out=tmp_path / "full", **options)
    assert [trial.score for trial in again.trials] == [trial.score for trial in whole.trials]
    assert {trial.state for trial in again.trials} == {"complete"}


def test_a_study_on_a_full_disk_is_an_error_too(home: Path, tmp_path: Path) -> None:
    with files_no_larger_than(8192), pytest.raises(DiskError, match=r"study\.db"):
        tune("ials", home / "data", out=tmp_path / "full", trials=1)


def test_a_comparison_does_not_blame_a_method(home: Path, tmp_path: Path) -> None:
    with files_no_larger_than(LIMIT), pytest.raises(DiskError):
        rf.compare(home / "data", "ease", out=tmp_path / "compared")
    results = rf.compare(home / "data", "ease", out=tmp_path / "compared")
    assert results["methods"][0]["error"] is None
