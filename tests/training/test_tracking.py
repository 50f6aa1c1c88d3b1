"""Logs for other tools: the files of MLflow's FileStore, and TensorBoard's."""

import builtins
import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from planted import split_groups

import rankfold as rf
from rankfold.errors import UserError
from rankfold.training.early_stopping import History
from rankfold.training.tracking import combine, tracked
from rankfold.types import Model, Step

READABLE = re.compile(r"^[/\w.\- ]*$")  # MLflow refuses a run with any other name


def step(number: int, *, whole: bool = True, **config: Any) -> Step:
    model = Model("m", config, {}, {}) if config else None
    return Step(number, 1.0 / number, model, dict, final=False, whole=whole, seconds=0.5)


def only_run(folder: Path) -> Path:
    (run,) = (path for path in (folder / "0").iterdir() if path.is_dir())
    return run


def lines(path: Path) -> list[list[str]]:
    return [line.split(" ") for line in path.read_text().splitlines()]


def test_a_fit_becomes_a_run_that_mlflow_reads(tmp_path: Path) -> None:
    with tracked(f"mlflow:{tmp_path}", "mine", {"width": 4}, metric="ndcg@10") as report:
        model = rf.fit("ials", split_groups(), width=4, sweeps=3, refit=True, report=report)
    experiment = yaml.safe_load((tmp_path / "0" / "meta.yaml").read_text())
    assert experiment["experiment_id"] == "0"
    assert experiment["lifecycle_stage"] == "active"
    run = only_run(tmp_path)
    about = yaml.safe_load((run / "meta.yaml").read_text())
    assert about["run_id"] == about["run_uuid"] == run.name
    assert about["experiment_id"] == "0"
    assert (about["run_name"], about["status"]) == ("mine", 3)
    assert 0 <= about["end_time"] - about["start_time"] < 60_000
    names = [str(p.relative_to(run / "metrics")) for p in (run / "metrics").rglob("*/*")]
    assert {"fit/loss", "fit/seconds", "fit/ndcg-10", "refit/loss"} <= set(names)
    assert all(READABLE.match(name) for name in names)
    entries = [entry for entry in model.model.notes["history"] if entry["phase"] == "fit"]
    logged = lines(run / "metrics" / "fit" / "ndcg-10")
    assert [(float(v), int(s)) for _, v, s in logged] == [(e["score"], e["step"]) for e in entries]
    assert all(int(when) >= about["start_time"] for when, _, _ in logged)
    params = {path.name: path.read_text() for path in (run / "params").iterdir()}
    assert params["width"] == "4"
    assert params["reg"] == str(model.model.config["reg"])


def test_csv_has_the_values_of_the_history(tmp_path: Path) -> None:
    with tracked(f"csv:{tmp_path}", "mine", {"width": 4}, metric="ndcg@10") as report:
        model = rf.fit("ials", split_groups(), width=4, sweeps=3, report=report)
    settings, values = sorted(tmp_path.iterdir(), key=lambda path: ".settings." not in path.name)
    rows = list(csv.DictReader(values.read_text().splitlines()))
    entries = model.model.notes["history"]
    for name, key in (("ndcg@10", "score"), ("loss", "loss")):
        logged = [(int(r["step"]), float(r["value"])) for r in rows if r["name"] == name]
        assert logged == [(entry["step"], entry[key]) for entry in entries]
    assert {row["phase"] for row in rows} == {"fit"}
    given = {
        row["setting"]: row["value"] for row in csv.DictReader(settings.read_text().splitlines())
    }
    assert (given["width"], given["sweeps"]) == ("4", "3")


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt, 5), (ValueError, 4)])
def test_a_failed_run_has_its_status(
    tmp_path: Path, error: type[BaseException], status: int
) -> None:
    def stop() -> None:
        with tracked(f"mlflow:{tmp_path}", "m"):
            raise error

    with pytest.raises(error):
        stop()
    assert yaml.safe_load((only_run(tmp_path) / "meta.yaml").read_text())["status"] == status


def test_two_runs_with_odd_names(tmp_path: Path) -> None:
    odd = 'ä "quoted": {name}\n'
    for _ in range(2):
        with tracked(f"mlflow:{tmp_path}", odd, {"a@b": "x" * 9000}):
            pass
    runs = [path for path in (tmp_path / "0").iterdir() if path.is_dir()]
    assert len(runs) == 2
    for run in runs:
        assert yaml.safe_load((run / "meta.yaml").read_text())["run_name"] == odd
        assert (run / "tags" / "mlflow.runName").read_text() == odd
        assert len((run / "params" / "a-b").read_text()) == 6000  # MLflow's limit


def test_steps_inside_an_epoch_are_not_logged(tmp_path: Path) -> None:
    history = History()
    with tracked(f"mlflow:{tmp_path}", "m") as report:
        report(history, step(1, whole=False))
        history.note(step(1), 0.25)
        report(history, step(1, width=8))
        history.note(step(2), float("nan"))
        report(history, step(2, width=8))
    run = only_run(tmp_path)
    assert [row[1:] for row in lines(run / "metrics/fit/score")] == [["0.25", "1"], ["nan", "2"]]
    assert (run / "params" / "width").read_text() == "8"


def test_combined_reports_are_called_in_order() -> None:
    calls: list[str] = []

    def make_report(name: str) -> Callable[[History, Step], None]:
        return lambda _history, _step: calls.append(name)

    combine(make_report("a"), make_report("b"))(History(), step(1))
    assert calls == ["a", "b"]


def test_nothing_is_written_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with tracked(None, "m") as report:
        report(History(), step(1))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["wandb:x", "mlflow", "mlflow:", ""])
def test_unknown_trackers_are_refused(where: str) -> None:
    with pytest.raises(UserError, match="cannot track"), tracked(where, "m"):
        pass


def test_a_bad_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot track"), tracked(f"mlflow:{tmp_path}/file", "m"):
        pass


def test_a_missing_tensorboard_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:
        if name.startswith(("tensorboard", "torch.utils.tensorboard")):
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match="tensorboard") as caught:
        tracked(f"tensorboard:{tmp_path}", "m").__enter__()
    assert "rankfold[tracking]" in caught.value.hint


def test_tensorboard_reads_the_log(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    history = History()
    with tracked(f"tensorboard:{tmp_path}", "m", {"width": 4}, metric="ndcg@10") as report:
        for number in (1, 2):
            history.note(step(number), number / 4)
            report(history, step(number, width=4))
    (run,) = tmp_path.iterdir()
    log = events.EventAccumulator(str(run))
    log.Reload()
    assert [(e.step, e.value) for e in log.Scalars("fit/ndcg@10")] == [(1, 0.25), (2, 0.5)]
