"""``--dry-run`` writes nothing, refuses what the command refuses, and says what is known."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rankfold as rf

Command = Callable[..., Any]


def contents(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_fit_writes_nothing_and_shows_its_plan(rankfold: Command, home: Path) -> None:
    before = contents(home)
    words = ("fit", "ials", home / "data", "--out", home / "new", "--set", "width=4", "--dry-run")
    done = rankfold(*words, "--json")
    assert done.code == 0
    assert contents(home) == before
    plan, data = json.loads(done.out), rf.prepare(home / "ratings.csv")
    assert plan["dry_run"]
    assert plan["seconds"] is None
    assert plan["work"]["settings"]["width"] == 4
    assert plan["work"]["train"] == data.split("train").n_pairs
    assert plan["work"]["steps"] == {"sweeps": 16}
    assert plan["writes"][0]["path"] == str(home / "new")
    fitted = rf.fit("ials", home / "data", width=4)
    held = sum(tensor.nbytes for tensor in fitted.model.tensors.values())
    assert plan["writes"][0]["at_least"] == held
    text = rankfold(*words).err
    assert "steps: sweeps 16" in text
    assert "time: not known" in text


def test_time_is_that_of_the_same_fit(rankfold: Command, home: Path) -> None:
    words = ("fit", "rg2-plain", home / "data", "--out", home / "model", "--dry-run", "--json")
    history = rf.load(home / "model").model.notes["history"]
    plan = json.loads(rankfold(*words, "--set", "width=8").out)
    assert plan["seconds"] == pytest.approx(sum(entry["seconds"] for entry in history))
    assert plan["writes"][0]["replaces"]
    assert json.loads(rankfold(*words, "--set", "width=9").out)["seconds"] is None


def test_a_finished_fit_has_nothing_to_do(rankfold: Command, home: Path) -> None:
    words = ("fit", "rg2-plain", home / "data", "--out", home / "model", "--resume", "--dry-run")
    done = rankfold(*words, "--set", "width=8", "--json")
    assert json.loads(done.out)["writes"] == []


@pytest.mark.parametrize(
    "words",
    [
        ("rg3", "data", "--out", "new"),
        ("cba", "data", "--out", "new"),
        ("rg2", "nowhere", "--out", "new"),
        ("rg2", "data", "--out", "data"),
        ("rg2", "data", "--out", "no/such/place"),
        ("rg2", "data", "--out", "new", "--set", "wide=3"),
        ("rg2", "data", "--out", "new", "--set", "width=0"),
        ("rg2", "data", "--out", "new", "--metric", "ndcg@"),
        ("rg2", "data", "--out", "new", "--device", "tpu"),
        ("rg2", "data", "--out", "new", "--track", "nowhere"),
        ("rg2", "data", "--out", "new", "--add", "nowhere"),
        ("rg2", "data", "--out", "model", "--add", "data"),
        ("rg2", "data", "--out", "model", "--resume"),
    ],
)
def test_fit_refuses_what_the_command_refuses(
    rankfold: Command, home: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(home)
    before = contents(home)
    dry = rankfold("fit", *words, "--dry-run")
    assert contents(home) == before
    real = rankfold("fit", *words)
    assert (dry.code, real.code) == (2, 2)
    assert dry.err.startswith("error: ")
    assert real.err.endswith(dry.err)
