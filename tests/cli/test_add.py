"""``rankfold add``: pairs for a model that is there."""

import json
from pathlib import Path

import polars as pl
import pytest
from commands import Command, Done
from rankings import assert_same_keys, ranking_of_json


@pytest.fixture
def more(tmp_path: Path) -> Path:
    """A file with a new query, a new pair of a known one, and an unknown candidate."""
    rows = [("newcomer", "item-1"), ("newcomer", "item-4"), ("user-3", "item-1"), ("user-3", "hat")]
    pl.DataFrame(rows, schema=["user", "item"], orient="row").write_csv(tmp_path / "more.csv")
    return tmp_path / "more.csv"


def added(rankfold: Command, model: Path, *words: object) -> Done:
    """Run a command that adds these pairs, and check what the model has of them."""
    request = ("search", model, "--history", "item-1,item-4", "--json")
    expected = ranking_of_json(rankfold(*request).out)
    done = rankfold(*words)
    assert done.code == 0
    assert "new queries: 1;" in done.err
    assert "skipped pairs: 1 (1 unknown candidate)" in done.err
    result = rankfold("search", model, "--query", "newcomer", "--json").out
    assert_same_keys(ranking_of_json(result), expected)
    assert "61 queries" in rankfold("info", model).err
    assert "added pairs: " in rankfold("info", model).err
    assert rankfold("evaluate", model, model.with_name("data"), "--json").code == 0
    return done


def test_pairs_of_a_file_are_added(
    rankfold: Command, model: Path, more: Path, tmp_path: Path
) -> None:
    plan = json.loads(rankfold("add", model, more, "--dry-run", "--json").out)["work"]
    assert (plan["new queries"], plan["pairs left out"]) == (1, 1)
    assert rankfold("search", model, "--query", "newcomer").code == 2
    added(rankfold, model, "add", model, more)
    prepared = ("prepare", more, "--out", tmp_path / "more", "--split", "1,0,0")
    assert rankfold(*prepared).code == 0
    again = rankfold("add", model, tmp_path / "more", "--json")
    assert again.err == ""
    assert json.loads(again.out)["added"]["pairs"] == 0


def test_fit_adds_pairs_to_an_existing_model(
    rankfold: Command, model: Path, more: Path, tmp_path: Path
) -> None:
    rankfold("prepare", more, "--out", tmp_path / "more", "--split", "1,0,0")
    words = ("fit", "rg2-plain", model.with_name("data"), "--out", model, "--add")
    done = added(rankfold, model, *words, tmp_path / "more")
    assert "exists: pairs are added, it is not fitted again" in done.err
    again = rankfold(*words, tmp_path / "more", "--json")
    assert again.err == ""
    first, second = json.loads(again.out)["notes"]["added"]
    assert (first["queries"], second["queries"], second["pairs"]) == (1, 0, 0)
