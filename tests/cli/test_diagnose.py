"""``rankfold diagnose``: two files, a table for people, one document for programs."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from commands import Command, assert_refused
from linear_grades import data_of

from rankfold.data import folder
from rankfold.tasks.diagnose import diagnose

SHORT = "not enough memory to diagnose"
SMALL = ("--set", "epochs=2", "--set", "width=4", "--set", "rows=20")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder.save(data_of(), tmp_path / "data")
    return tmp_path / "data"


def test_json_is_one_document_and_the_file(rankfold: Command, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    done = rankfold("diagnose", "ranks", data, "--out", out, *SMALL, "--seed", 3, "--json")
    assert (done.code, done.err) == (0, "")
    result = json.loads(done.out)
    assert result == json.loads((out / "ranks.json").read_text())
    assert result == diagnose("ranks", data, {"epochs": 2, "width": 4, "rows": 20}, seed=3).details
    assert (result["seed"], result["config"]["epochs"], result["settings"]["rows"]) == (3, 2, 20)
    pictures = ["ranks-bound.svg", "ranks-estimates.svg", "ranks-near-rate.svg", "ranks.svg"]
    for picture in pictures:
        ElementTree.parse(out / picture)
    assert {path.name for path in out.iterdir()} == {"ranks.json", *pictures}


def test_a_table_is_printed_on_stderr(rankfold: Command, tmp_path: Path) -> None:
    words = ("diagnose", "surrogate", "--out", tmp_path, "--set", "scores=100")
    done = rankfold(*words)
    assert (done.code, done.out) == (0, "")
    result = json.loads((tmp_path / "surrogate.json").read_text())
    for name, figure in result["figures"].items():
        assert name in done.err
        assert f"{figure['value']:.4g}" in done.err
    assert result["follows"][:40] in done.err
    assert "surrogate.svg" in done.err
    assert rankfold(*words, "--quiet").err == ""
    done = rankfold(*words[:2], tmp_path / "data", *words[2:])
    assert "needs no data" in done.err


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("rnks",), "there is no diagnosis 'rnks'", "did you mean ranks?"),
        (("ranks",), "needs data", "DATA"),
        (("ranks", "{data}", "--method", "ce"), "got 'ce'", "use --method cba"),
        (("ranks", "{data}", "--set", "seed=1"), "there is no option 'seed'", "options: rows"),
        (("whiteness", "{data}", "--set", "window=2"), "above `lags`, got 2", "larger"),
        (
            ("surrogate", "--set", "sigmas=.2,.1,.10"),
            "must be distinct numbers above 0",
            "Gaussian",
        ),
        (
            ("surrogate", "--set", "spreads=1000000000000"),
            "at least 2 and at most 10000",
            "number of spreads",
        ),
        (("surrogate", "--set", "widest=1e308"), "at most 1e+100, got 1e+308", "largest spread"),
        (("surrogate", "--set", "scores=1000000000000"), SHORT, "fewer queries, rows or scores"),
        (("ranks", "{data}", "--set", "width=1000000000000"), SHORT, "a smaller width"),
        (("ranks", "{data}", "--set", "width=1" + 18 * "0"), SHORT, "a smaller width"),
        (
            ("ranks", "{data}", "--set", "cache=1" + 30 * "0"),
            "`cache` must be a whole number",
            "below 2**63",
        ),
    ],
)
def test_errors_have_hints(
    rankfold: Command, data: Path, tmp_path: Path, words: Any, message: str, hint: str
) -> None:
    done = rankfold("diagnose", *(word.format(data=data) for word in words), "--out", tmp_path)
    assert_refused(done, message, hint)
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="it is for CUDA devices")
def test_half_precision_without_cuda_gets_a_hint(
    rankfold: Command, data: Path, tmp_path: Path
) -> None:
    words = ("diagnose", "ranks", data, "--out", tmp_path, *SMALL, "--set")
    done = rankfold(*words, "precision=bfloat16")
    assert done.code == 2
    assert "precision=bfloat16 needs a CUDA device, got cpu" in done.err
    assert "set precision=float32" in done.err.split("hint: ")[1]
    assert "--device" not in done.err  # there is no such option
    assert rankfold(*words, "precision=float32").code == 0


def test_pairs_are_refused(rankfold: Command, home: Path) -> None:
    done = rankfold("diagnose", "ranks", home / "data", "--out", home / "out")
    assert done.code == 2
    assert "needs graded rows" in done.err


def test_a_fitted_model_is_diagnosed(rankfold: Command, home: Path) -> None:
    words = ("diagnose", "taylor", home / "data", "--model", home / "model", "--out", home / "out")
    done = rankfold(*words, "--set", "queries=5", "--set", "scales=3", "--json")
    assert (done.code, done.err) == (0, "")
    result = json.loads(done.out)
    assert result["method"] == "rg2-plain"
    assert result["config"]["width"] == 8
    assert result["figures"]["relative error of RGx's gradient"]["low"] is not None
    assert {path.name for path in (home / "out").iterdir()} == {
        "taylor.json",
        "taylor.svg",
        "taylor-gap.svg",
        "taylor-bound.svg",
    }
    done = rankfold(*words[:3], "--method", "cba", "--out", home / "out")
    assert done.code == 2
    assert "cba fits graded" in done.err


def test_an_existing_file_is_named(rankfold: Command, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    done = rankfold("diagnose", "surrogate", "--out", tmp_path / "out")
    assert done.code == 2
    assert "cannot make the folder" in done.err


def test_without_data_no_folder_is_left(rankfold: Command, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    for words in (("ranks",), ("ranks", tmp_path / "nowhere")):
        assert rankfold("diagnose", *words, "--out", out).code == 2
    assert not out.parent.exists()
    (tmp_path / "file").write_text("")
    done = rankfold("diagnose", "surrogate", "--out", tmp_path / "file" / "out")
    assert "cannot make the folder" in done.err
