"""``rankfold blend``: what it prints and writes, and its errors."""

import json
from pathlib import Path
from typing import Any

import pytest
from commands import Command


@pytest.fixture
def words(rankfold: Command, home: Path) -> tuple[Any, ...]:
    """The command for the two models of ``home`` and its data."""
    assert rankfold("fit", "ease", home / "data", "--out", home / "ease").code == 0
    return ("blend", home / "model", home / "ease", home / "data", "--out", home / "both")


def test_blend_says_what_was_chosen(rankfold: Command, home: Path, words: tuple[Any, ...]) -> None:
    done = rankfold(*words)
    assert done.code == 0
    assert done.out == ""
    assert "both: blend of rg2-plain and ease, chosen by validation from " in done.err
    result = json.loads(rankfold("search", home / "both", "--query", "user-3", "--json").out)
    groups = [int(entry["candidate"].removeprefix("item-")) % 3 for entry in result["results"]]
    assert groups[0] == 0  # user 3 is of group 0
    assert rankfold("evaluate", home / "both", home / "data", "--json").code == 0
    assert rankfold("verify", home / "both").code == 0


def test_json_is_one_document(rankfold: Command, home: Path, words: tuple[Any, ...]) -> None:
    done = rankfold(*words, "--json", "--metric", "recall@5")
    assert done.code == 0
    assert done.err == ""
    result = json.loads(done.out)
    assert (result["model"], result["method"]) == (str(home / "both"), "blend")
    assert result["notes"]["metric"] == "recall@5"
    assert result["notes"]["chosen_by"] == "validation"
    assert set(result["notes"]["parts"]) == {"rg2-plain", "ease"}


def test_a_share_can_be_given(rankfold: Command, home: Path, words: tuple[Any, ...]) -> None:
    done = rankfold(*words, "--set", "share=.25")
    assert done.code == 0
    assert "both: blend of rg2-plain and ease, share 0.25" in done.err
    config = json.loads(rankfold("info", home / "both", "--json").out)["config"]
    assert config["share"] == 0.25


def test_errors_name_the_folder(rankfold: Command, home: Path, words: tuple[Any, ...]) -> None:
    other = home / "other"
    rankfold("prepare", home / "ratings.csv", "--out", other, "--seed", "1")
    done = rankfold(*words[:3], other, *words[4:])
    assert done.code == 2
    assert f"{home / 'model'} was fitted on other data than {other}" in done.err
    assert "hint: fit both models on" in done.err
    done = rankfold(*words, "--set", "width=3")
    assert done.code == 2
    assert "`width` is not an option" in done.err
    done = rankfold("blend", home / "model", home / "model", *words[3:])
    assert done.code == 2
    assert "got rg2-plain twice" in done.err
    assert not (home / "both").exists()
