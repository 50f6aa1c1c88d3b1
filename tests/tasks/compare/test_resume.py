"""A comparison that was killed or interrupted is resumed; another one is refused."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compared_methods import fit_broken, method_of, timeless
from killed import kill
from planted import groups

import rankfold as rf
from rankfold import storage
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.tasks.compare import runner
from rankfold.types import Dataset, Run, Step

TWO_SEEDS: dict[str, Any] = {"seeds": 2, "settings": {"bpr": {"epochs": 2}}}


def compare_and_wait(data: Path, out: Path, waits: Path) -> None:
    """Never fit the last model."""
    fit = runner._fit

    def fit_or_wait(plan: Any, entry: Any, settings: Any, seed: int, report: Any) -> None:
        if entry.method == "bpr" and seed == 1:
            waits.touch()
            time.sleep(60)
        fit(plan, entry, settings, seed, report)

    runner._fit = fit_or_wait
    rf.compare(data, "popularity,bpr", out=out, **TWO_SEEDS)


def test_a_killed_comparison_is_resumed(data: Path, tmp_path: Path) -> None:
    waits = tmp_path / "waits"
    kill(compare_and_wait, data, tmp_path / "killed", waits, until=waits.exists)
    runs = tmp_path / "killed" / "runs"
    done = {path: path.stat().st_mtime_ns for path in runs.glob("*/seed-*/manifest.json")}
    assert {path.parent.name for path in done} == {"seed-0", "seed-1"}
    assert len(done) == 3
    assert not (tmp_path / "killed" / "results.json").exists()
    killed = rf.compare(data, "popularity,bpr", out=tmp_path / "killed", **TWO_SEEDS)
    assert {path: path.stat().st_mtime_ns for path in done} == done  # nothing is run twice
    assert timeless(killed) == timeless(
        rf.compare(data, "popularity,bpr", out=tmp_path / "other", **TWO_SEEDS)
    )
    assert not list(runs.glob("*/model-*"))


def fit_interrupted(data: Dataset, config: Any, run: Run) -> Iterator[Step]:
    for step in METHODS["popularity"].fit(data, config, run):
        assert step.final
        signal.raise_signal(signal.SIGINT)
        yield step


def test_an_interrupt_of_the_last_step_stops_all_and_keeps_the_model(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, out = METHODS["popularity"].config, tmp_path / "out"
    monkeypatch.setitem(METHODS, "halted", method_of(kind, fit_interrupted))
    with pytest.raises(KeyboardInterrupt):
        rf.compare(data, "halted,ease", out=out, refit=False)
    assert (out / "runs/halted/model-0").exists()
    assert not (out / "runs/ease").exists()
    monkeypatch.setitem(METHODS, "halted", method_of(kind, fit_broken))
    again = rf.compare(data, "halted,ease", out=out, refit=False)
    assert [method["error"] for method in again["methods"]] == [None, None]  # not fitted again


def test_methods_may_join_and_finished_ones_stay(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = rf.compare(data, "ease", out=tmp_path / "out")
    fits: list[str] = []
    fit = runner.fit
    monkeypatch.setattr(
        runner, "fit", lambda name, *a, **k: (fits.append(name), fit(name, *a, **k))
    )
    both = rf.compare(data, "ease,popularity", out=tmp_path / "out")
    assert fits == ["popularity"]
    assert both["methods"][0] == first["methods"][0]


def test_a_finished_model_is_tested_after_an_interrupt(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as now:
        now.setattr(runner, "_test_ranker", cut_off)
        with pytest.raises(KeyboardInterrupt):
            rf.compare(data, "ease", out=tmp_path / "out")
    assert (tmp_path / "out/runs/ease/model-0/manifest.json").exists()
    monkeypatch.setattr(runner, "fit", None)  # is not called again
    results = rf.compare(data, "ease", out=tmp_path / "out")
    assert results["methods"][0]["error"] is None


FINISHED: dict[str, Any] = {"metrics": ["ndcg@10"], "settings": {"ease": {"reg": 2}}}


@pytest.fixture(scope="module")
def finished(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison with these options."""
    out = tmp_path_factory.mktemp("finished") / "out"
    rf.compare(data, "ease", out=out, **FINISHED)
    return out


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seeds": 2}, "with seeds = 1, not 2"),
        ({"metrics": ["mrr@5"]}, r"with metrics = \['ndcg@10'\], not \['mrr@5'\]"),
        ({"metric": "mrr@5"}, "with metric = ndcg@10, not mrr@5"),
        ({"refit": False}, "with refit = True, not False"),
        ({"settings": {"ease": {"reg": 3}}}, "with settings: reg = 2, not 3"),
        ({"settings": {}}, "with settings: reg = 2, not None"),
    ],
)
def test_the_folder_of_another_comparison_is_refused(
    data: Path, finished: Path, changed: dict[str, Any], message: str
) -> None:
    before = (finished / "results.json").read_bytes()
    with pytest.raises(UserError, match=message) as caught:
        rf.compare(data, "ease", out=finished, **{**FINISHED, **changed})
    assert "--out" in caught.value.hint
    assert (finished / "results.json").read_bytes() == before


def test_two_comparisons_in_one_folder_are_refused(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    results = rf.compare(data, "popularity", out=out)
    left = out / "runs/ease/model-0"  # as if another process had not finished it
    left.mkdir(parents=True)
    with (
        storage.locked(out),
        pytest.raises(UserError, match=f"process {os.getpid()} is writing {out}") as caught,
    ):
        rf.compare(data, "popularity,ease", out=out)
    assert "--out" in str(caught.value.hint)
    assert left.exists()
    again = rf.compare(data, "popularity", out=out)
    assert timeless(again) == timeless(results)


def test_other_data_is_refused(data: Path, tmp_path: Path) -> None:
    rf.compare(data, "popularity", out=tmp_path / "out")
    with pytest.raises(UserError, match="with other data"):
        rf.compare(rf.prepare(groups(7)), "popularity", out=tmp_path / "out")
