"""``rankfold add``: pairs for a model that is there."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
from rankings import assert_same_keys, ranking_of_json

Command = Callable[..., Any]


def test_pairs_of_a_file_are_added(rankfold: Command, model: Path, tmp_path: Path) -> None:
    rows = [("newcomer", "item-1"), ("newcomer", "item-4"), ("user-3", "item-1"), ("user-3", "hat")]
    more, data = tmp_path / "more.csv", model.with_name("data")
    pl.DataFrame(rows, schema=["user", "item"], orient="row").write_csv(more)
    request = ("search", model, "--history", "item-1,item-4", "--json")
    expected = ranking_of_json(rankfold(*request).out)
    plan = json.loads(rankfold("add", model, more, "--dry-run", "--json").out)["work"]
    assert (plan["new queries"], plan["pairs left out"]) == (1, 1)
    assert rankfold("search", model, "--query", "newcomer").code == 2
    done = rankfold("add", model, more)
    assert done.code == 0
    assert "new queries: 1;" in done.err
    assert "skipped pairs: 1 (1 unknown candidate)" in done.err
    result = rankfold("search", model, "--query", "newcomer", "--json").out
    assert_same_keys(ranking_of_json(result), expected)
    assert "61 queries" in rankfold("info", model).err
    assert "added pairs: " in rankfold("info", model).err
    assert rankfold("evaluate", model, data, "--json").code == 0
    prepared = ("prepare", more, "--out", tmp_path / "more", "--split", "1,0,0")
    assert rankfold(*prepared).code == 0
    again = rankfold("add", model, tmp_path / "more", "--json")
    assert again.err == ""
    assert json.loads(again.out)["added"]["pairs"] == 0
