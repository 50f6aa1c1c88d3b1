"""``rankfold tune``: its output and its files."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from commands import Command

import rankfold as rf
from rankfold.cli import tune as command

FEW = ("--set", "width=4", "--set", "sweeps=2")


def test_json_alone_on_stdout(rankfold: Command, home: Path) -> None:
    done = rankfold(
        "tune", "ials", home / "data", "--out", home / "t", "--trials", 2, *FEW, "--json"
    )
    assert (done.code, done.err) == (0, "")
    result = json.loads(done.out)
    assert (result["method"], result["metric"]) == ("ials", "ndcg@10")
    assert [trial["number"] for trial in result["trials"]] == [1, 2]
    assert result["score"] == max(trial["score"] for trial in result["trials"])
    assert result["settings"]["width"] == 4
    assert result["model"] == str(home / "t" / "model")


def test_a_table_and_the_next_command_are_printed(rankfold: Command, home: Path) -> None:
    words = ("tune", "ials", home / "data", "--out", home / "t", *FEW)
    done = rankfold(*words, "--trials", 2)
    assert done.code == 0
    assert done.out == ""
    assert "ials: 2 of 2 trials, best first" in done.err
    assert "background" in done.err
    best = home / "t" / "best.toml"
    assert f"rankfold fit ials DATA --config {best} --out MODEL" in done.err
    fitted = rankfold("fit", "ials", home / "data", "--config", best, "--out", home / "again")
    assert fitted.code == 0
    again, tuned = rf.load(home / "again"), rf.load(home / "t" / "model")
    assert again.model.config == tuned.model.config
    more = rankfold(*words, "--trials", 3, "--json")
    assert len(json.loads(more.out)["trials"]) == 3


def test_a_self_tuning_method_is_reported(rankfold: Command, home: Path) -> None:
    words = ("--out", home / "t", "--set", "width=4")
    done = rankfold("tune", "rg2", home / "data", *words)
    assert done.code == 0
    assert "rg2 selects its own settings on validation: it was fitted once" in done.err
    done = rankfold("tune", "popularity", home / "data", "--out", home / "p")
    assert "popularity has nothing to search: it was fitted once" in done.err


def test_an_interrupt_keeps_finished_trials(
    rankfold: Command, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rankfold.tasks.tune import folder

    write = folder.write_trials

    def interrupt(*given: Any) -> None:
        write(*given)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(folder, "write_trials", interrupt)
    words = ("tune", "ials", home / "data", "--out", home / "t", "--trials", 3, *FEW)
    done = rankfold(*words)
    assert done.code == 130
    assert f"stopped: the same command resumes the search in {home / 't'}" in done.err
    monkeypatch.setattr(folder, "write_trials", write)
    done = rankfold(*words, "--json")
    assert len(json.loads(done.out)["trials"]) == 3


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (("--budget", "soon"), "`budget` must be a time, got 'soon'", "write 120s, 2m or 1h"),
        (("--set", "wdith=4"), "there is no option 'wdith'", "did you mean 'width'?"),
        (("--space", "big"), "there is no space 'big'", "use usual or paper"),
        (
            ("--trials", "0"),
            "`trials` must be at least 1, got 0",
            "maximum number of trials; default: 20 without a budget",
        ),
    ],
)
def test_invalid_arguments_are_errors(
    rankfold: Command, home: Path, words: tuple[str, ...], error: str, hint: str
) -> None:
    done = rankfold("tune", "ials", home / "data", "--out", home / "t", *words)
    assert done.code == 2
    assert done.err == f"error: {error}\nhint: {hint}\n"


def test_defaults_are_those_of_the_library() -> None:
    from dataclasses import fields
    from inspect import signature

    from rankfold.tasks.options import TuneOptions
    from rankfold.tasks.tune.plan import DEFAULT_TRIALS

    shown = {name: one.default for name, one in signature(command.command).parameters.items()}
    own = {one.name: one.default for one in fields(TuneOptions)}
    for name in ("trials", "budget", "metric", "seed", "space", "device"):
        assert shown[name] == own[name]
    assert DEFAULT_TRIALS == 20  # as --help states
