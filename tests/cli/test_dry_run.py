"""``--dry-run`` writes nothing, refuses what the command refuses, and says what is known."""

import json
from pathlib import Path
from typing import Any

import pytest
from commands import Command

import rankfold as rf


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
    check_refused(rankfold, home, "fit", *words)


def check_refused(rankfold: Command, home: Path, *words: str) -> None:
    """The dry run and the command refuse with the same error; the dry run changes nothing."""
    before = contents(home)
    dry = rankfold(*words, "--dry-run")
    assert contents(home) == before
    real = rankfold(*words)
    assert (dry.code, real.code) == (2, 2)
    error = dry.err[dry.err.index("error: ") :]
    assert real.err.endswith(error)


@pytest.mark.parametrize(
    "words",
    [
        ("prepare", "ratings.csv", "--out", "new"),
        ("tune", "bpr", "data", "--out", "new", "--trials", "3"),
        ("compare", "data", "--methods", "bpr,ease", "--out", "new"),
        ("index", "model"),
        ("predict", "model", "users.csv", "--out", "new.csv"),
        ("evaluate", "model", "data"),
        ("blend", "model", "other", "data", "--out", "both"),
        ("diagnose", "taylor", "data", "--out", "answer", "--model", "model"),
        ("diagnose", "surrogate", "--out", "answer"),
        ("export", "model", "--out", "vectors"),
    ],
)
def test_every_long_command_can_be_outlined(
    rankfold: Command, home: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(home)
    (home / "users.csv").write_text("user\nuser-1\nuser-2\nnobody\n")
    rf.fit("ease", home / "data", out=home / "other")
    before = contents(home)
    done = rankfold(*words, "--dry-run", "--json")
    assert done.code == 0, done.err
    assert contents(home) == before
    plan = json.loads(done.out)
    assert plan["command"] == words[0]
    assert plan["work"] == EXPECTED[words[0]] | plan["work"]
    assert "would run; nothing was written" in rankfold(*words, "--dry-run").err


EXPECTED: dict[str, dict[str, Any]] = {
    "prepare": {"queries": 60, "candidates": 30},
    "tune": {"method": "bpr", "trials": 3},
    "compare": {"fits": 2, "tuned by": "none: defaults"},
    "index": {"candidates": 30, "width": 8},
    "predict": {"queries": 2, "unknown to the model": 1, "k": 10},
    "evaluate": {"queries": 60, "split": "test"},
    "blend": {"first": "rg2-plain", "second": "ease", "share": "chosen on validation"},
    "diagnose": {},
    "export": {"width": 8, "candidate vectors": 30, "query vectors": 60},
}


@pytest.mark.parametrize(
    "words",
    [
        ("prepare", "nowhere.csv", "--out", "new"),
        ("prepare", "ratings.csv", "--out", "model"),
        ("prepare", "ratings.csv", "--out", "new", "--query-column", "reader"),
        ("prepare", "ratings.csv", "--out", "new", "--kcore", "500"),
        ("tune", "bpr", "data", "--out", "data"),
        ("tune", "bpr", "data", "--out", "no/such/place"),
        ("tune", "bpr", "data", "--out", "new", "--budget", "soon"),
        ("compare", "data", "--methods", "bpr,bpr", "--out", "new"),
        ("compare", "data", "--methods", "bpr", "--out", "model"),
        ("index", "model", "--kind", "tree"),
        ("index", "model", "--recall", "2"),
        ("predict", "model", "ratings.csv", "--out", "new.txt"),
        ("predict", "model", "ratings.csv", "--out", "new.csv", "--query-column", "item"),
        ("predict", "model", "ratings.csv", "--out", "new.csv", "--fpr", ".01"),
        ("evaluate", "model", "data", "--metrics", "ndgc@10"),
        ("evaluate", "model", "data", "--split", "tests"),
        ("evaluate", "model", "data", "--report", "new.html"),
        ("blend", "model", "model", "data", "--out", "new"),
        ("diagnose", "taylor", "--out", "new"),
        ("diagnose", "taylor", "data", "--out", "new", "--set", "queries=0"),
        ("diagnose", "taylor", "data", "--out", "new", "--set", "width=0"),
        ("diagnose", "ranks", "data", "--out", "new"),
        ("export", "model", "--out", "data"),
        ("export", "model", "--out", "new", "--format", "csv"),
        ("extend", "model", "ratings.csv"),
    ],
)
def test_long_commands_refuse_what_they_would_refuse(
    rankfold: Command, home: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(home)
    check_refused(rankfold, home, *words)


def test_of_large_files_only_the_heads_are_read(
    rankfold: Command, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankfold.tasks.dry_run.prepare.HEAD_BYTES", 3000)
    lines = (home / "ratings.csv").read_text().splitlines(keepends=True)
    lines[2] = '"user\n1",item-1,2,3\n'  # the head ends between records
    (home / "many.csv").write_text("".join(lines))
    monkeypatch.setattr("rankfold.tasks.dry_run.predict.HEAD_BYTES", 400)
    done = rankfold("prepare", home / "many.csv", "--out", home / "new", "--dry-run", "--json")
    plan = json.loads(done.out)["work"]
    assert 50 < plan["pairs in the heads"] < 150
    assert plan["pairs"] == pytest.approx(len(lines) - 1, rel=0.1)
    assert plan["dropped there"] == {}
    words = ("predict", home / "model", home / "ratings.csv", "--out", home / "l.csv", "--dry-run")
    plan = json.loads(rankfold(*words, "--json").out)
    assert 1 < plan["work"]["queries"] <= 80
    assert plan["notes"] == ["only the first rows were read: figures are estimates"]


def test_a_search_that_began_says_how_long_the_rest_takes(rankfold: Command, home: Path) -> None:
    words = ("tune", "ials", home / "data", "--out", home / "search", "--trials", "2")
    assert rankfold(*words).code == 0
    before = contents(home)
    plan = json.loads(rankfold(*words[:-1], "3", "--dry-run", "--json").out)
    assert contents(home) == before
    assert plan["work"]["of these done"] == 2
    assert plan["seconds"] > 0
    other = rankfold(*words, "--seed", "1", "--dry-run")
    assert other.code == 2
