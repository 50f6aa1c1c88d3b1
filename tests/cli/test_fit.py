"""The command ``fit``."""

import json
from pathlib import Path

from commands import Command

from rankfold.tasks.fit.progress import reporter
from rankfold.training.early_stopping import History
from rankfold.types import Model, Step

MODEL = Model("none", {}, {})


def test_fit_adds_to_a_new_model(rankfold: Command, model: Path, tmp_path: Path) -> None:
    data, out = model.with_name("data"), tmp_path / "new"
    done = rankfold("fit", "popularity", data, "--out", out, "--add", data, "--json")
    assert done.code == 0
    [entry] = json.loads(done.out)["notes"]["added"]
    assert (entry["queries"], entry["pairs"], entry["left_out"]) == (0, 0, 0)
    assert rankfold("search", out, "--query", "user-3").code == 0


def test_fit_stops_after_its_time(rankfold: Command, model: Path, tmp_path: Path) -> None:
    words = ("fit", "ials", model.with_name("data"), "--set", "sweeps=5", "--patience", 9, "--json")
    for name, more, steps in (("short", ("--seconds", 0), 1), ("long", ("--seconds", 600), 5)):
        results = json.loads(rankfold(*words, "--out", tmp_path / name, *more).out)
        assert len(results["notes"]["history"]) == steps
    done = rankfold(*words, "--out", tmp_path / "m", "--seconds", -1)
    assert (done.code, "`seconds` must be at least 0, got -1" in done.err) == (2, True)


def test_fit_says_when_its_time_cut_it_off(rankfold: Command, model: Path, tmp_path: Path) -> None:
    words = ("fit", "ials", model.with_name("data"), "--set", "sweeps=3", "--out", tmp_path / "m")
    assert "cut off after 0 s (--seconds)" in rankfold(*words, "--seconds", 0).err
    done = rankfold(*words, "--patience", 9)
    assert "cut off" not in done.err
    assert "fit: step 1 of 3" in done.err
    rg2 = ("fit", "rg2", model.with_name("data"), "--out", tmp_path / "m", "--seconds", 600)
    assert "--seconds had no effect" in rankfold(*rg2).err


def test_a_line_of_a_fit_has_the_best_score_and_the_time_left() -> None:
    lines: list[str] = []
    report = reporter(lambda what, _share: lines.append(what), "ndcg@10")
    history = History(steps=4)
    for number, score in enumerate((0.2, 0.3, 0.25), start=1):
        step = Step(number, 0.5, MODEL, dict, final=False)._replace(seconds=2.0)
        history.note(step, score)
        report(history, step)
    assert lines[0] == "fit: step 1 of 4, loss 0.5, ndcg@10 0.2000"  # with what is done once
    assert lines[1].startswith("fit: step 2 of 4, loss 0.5, ndcg@10 0.3000, at most 1 s left")
    assert "ndcg@10 0.2500 (best 0.3000 at step 2)" in lines[2]


def test_fit_json_and_settings_from_toml(rankfold: Command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('width = 4\nsolver = "als"\nsweeps = 2\n')
    words = ("fit", "rg2-plain", model.with_name("data"), "--out", tmp_path / "m2", "--json")
    done = rankfold(*words, "--config", tmp_path / "c.toml", "--set", "sweeps=3")
    assert done.code == 0
    assert done.err == ""
    assert len(json.loads(done.out)["notes"]["history"]) == 3
    assert json.loads(rankfold("info", tmp_path / "m2", "--json").out)["config"]["width"] == 4
