"""Features on the command line: from a table of items to new candidates in a ranking."""

import json
from pathlib import Path

import polars as pl
import pytest
from commands import Command, assert_refused
from planted import informed_groups

import rankfold as rf

pytestmark = pytest.mark.usefixtures("extra_methods")


@pytest.fixture
def items(home: Path) -> Path:
    """Features of the items of ratings.csv and of one more; the keys are not the first column."""
    names = [*range(30), 99]
    table = {
        "group": [f"g{n % 3}" for n in names],
        "item": [f"item-{n}" for n in names],
        "size": [n % 3 for n in names],
    }
    pl.DataFrame(table).write_csv(home / "items.csv")
    return home / "items.csv"


@pytest.fixture
def informed(rankfold: Command, home: Path, items: Path) -> Path:
    """A model fitted with these features."""
    words = ("--out", home / "known", "--candidate-features", items, "--quiet")
    assert rankfold("prepare", home / "ratings.csv", *words).code == 0
    assert rankfold("fit", "slopes", home / "known", "--out", home / "slopes").code == 0
    return home / "slopes"


def test_prepare_describes_the_features(rankfold: Command, home: Path, items: Path) -> None:
    people = home / "people.jsonl"
    people.write_text('{"user": "user-1", "age": 7, "tags": ["a"]}\n{"age": 3}\n')
    words = ("--candidate-features", items, "--query-features", people)
    done = rankfold("prepare", home / "ratings.csv", "--out", home / "known", *words)
    assert done.code == 0
    shown = " ".join(done.err.split())
    assert "60 queries x 31 candidates" in shown
    assert "query features: 1 number, 0 categories; keys without features: 59" in shown
    assert "candidate features: 1 number, 1 category; keys without features: 0" in shown
    assert "without pairs: 1" in shown
    assert "unusable query features: tags" in shown
    assert "query features: 1 row dropped for a missing key (people.jsonl:2)" in shown
    again = rankfold("info", home / "known")
    assert "candidate features: 1 number, 1 category" in again.err
    about = json.loads(rankfold("info", home / "known", "--json").out)
    assert about["candidate_columns"] == {
        "numbers": ["size"],
        "levels": {"group": ["g0", "g1", "g2"]},
    }


def test_verify_covers_features(rankfold: Command, informed: Path) -> None:
    data = informed.with_name("known")
    assert rankfold("verify", data).code == 0
    (file,) = data.glob("candidate_features-*.safetensors")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    done = rankfold("verify", data)
    assert done.code == 2
    assert file.name in done.err


def test_extend_adds_candidates_to_search(rankfold: Command, informed: Path) -> None:
    table = {"item": ["item-x", "item-y"], "group": ["g1", "g2"], "size": [1, 2]}
    new = informed.with_name("new.tsv")
    pl.DataFrame(table).write_csv(new, separator="\t")
    plan = json.loads(rankfold("extend", informed, new, "--dry-run", "--json").out)["work"]
    assert (plan["candidates to add"], plan["candidates in all"]) == (2, 33)
    assert len(rf.load(informed).candidates) == 31
    done = rankfold("extend", informed, new)
    assert done.code == 0
    assert "2 candidates added, 33 in all" in " ".join(done.err.split())
    like = rankfold("search", informed, "--candidate", "item-x", "-k", "1", "--json")
    assert int(json.loads(like.out)["results"][0]["candidate"].removeprefix("item-")) % 3 == 1
    result = rankfold(
        "search", informed, "--query", "user-1", "-k", "40", "--include-seen", "--json"
    )
    assert "item-y" in [entry["candidate"] for entry in json.loads(result.out)["results"]]
    assert "2 candidates were added from their features" in rankfold("info", informed).err
    again = rankfold("extend", informed, new)
    assert again.code == 2
    assert "knows the candidate 'item-x' and 1 more" in again.err


def test_extend_in_scripts(rankfold: Command, informed: Path) -> None:
    new = informed.with_name("new.csv")
    new.write_text("group,size,key\ng1,1,item-x\ng2,2,\n")
    done = rankfold("extend", informed, new, "--key-column", "key", "--json")
    assert done.code == 0
    assert done.err == ""
    expected = {"model": str(informed), "added": 1, "candidates": 32, "left_out": 1}
    why = {"why": "a missing key", "rows": 1, "first": ["new.csv:3"]}
    assert json.loads(done.out) == {**expected, "dropped": [why]}


def test_invalid_input_gets_an_error_with_a_hint(
    rankfold: Command, informed: Path, model: Path, items: Path
) -> None:
    data = model.with_name("data")
    for words, message, hint in (
        (("extend", model, items), "rg2-plain makes no vectors from features", "slopes"),
        (("extend", data, items), "is a data folder, not a model", "info"),
        (("extend", informed, "nowhere.csv"), "no file nowhere.csv", ""),
        (("extend", informed, items, "--key-column", "x"), "no column 'x'", "group, item, size"),
    ):
        assert_refused(rankfold(*words), message, hint)
    assert "31 candidates" in rankfold("info", informed).err


def test_search_by_the_features_of_a_new_query(rankfold: Command, tmp_path: Path) -> None:
    path = tmp_path / "model"
    model = rf.fit("bir", informed_groups(), encoder="towers", width=8, epochs=20, out=path)
    done = rankfold("search", path, "--features", "group=g4", "--features", "age=20", "--json")
    assert done.code == 0, done.err
    expected = model.search(features={"group": "g4", "age": 20}).keys[0]
    assert [one["candidate"] for one in json.loads(done.out)["results"]] == expected
    for word, why in (("group", "cannot read"), ("age=old", "age must be a number, got 'old'")):
        done = rankfold("search", path, "--features", word)
        assert done.code == 2
        assert why in done.err
    done = rankfold("search", path, "--features", "group=g4,age=20")
    assert done.code == 2
    assert "--features takes one column, got 'group=g4,age=20'" in done.err
    done = rankfold("search", path, "--features", "group=[g9]")
    assert "group=[g9] was not in training: it counts as missing" in done.err
