"""``rankfold evaluate``: propensities and strata."""

import json
from pathlib import Path

from commands import Command

import rankfold as rf


def test_propensities_are_in_the_document(rankfold: Command, model: Path) -> None:
    data = model.with_name("data")
    words = ("evaluate", model, data, "--json", "--metrics", "psp@5,psn-raw@3")
    first, second = rankfold(*words), rankfold(*words, "--propensity", ".6,2.6")
    for done, given in ((first, (0.55, 1.5)), (second, (0.6, 2.6))):
        assert (done.code, done.err) == (0, "")
        result = json.loads(done.out)
        assert result["propensity"] == {"A": given[0], "B": given[1]}
        expected = rf.evaluate(str(model), data, metrics=["psp@5", "psn-raw@3"], propensity=given)
        assert result["metrics"] == dict(expected.metrics)
        assert "strata" not in result
    assert first.out != second.out


def test_propensities_are_printed_with_metrics_that_use_them(
    rankfold: Command, model: Path
) -> None:
    words = ("evaluate", model, model.with_name("data"), "--propensity", ".6,2.6", "--metrics")
    assert "A = 0.6, B = 2.6" in rankfold(*words, "psp@5").err
    assert "B = 2.6" not in rankfold(*words, "ndcg@5").err


def test_a_wrong_propensity_gets_a_hint(rankfold: Command, model: Path) -> None:
    done = rankfold("evaluate", model, model.with_name("data"), "--propensity", "1.5")
    assert (done.code, done.out) == (2, "")
    assert "propensity must be two numbers, got '1.5'" in done.err
    assert "write A,B such as .55,1.5" in done.err


def test_strata_in_the_document_and_in_a_table(rankfold: Command, model: Path) -> None:
    data = model.with_name("data")
    words = ("evaluate", model, data, "--strata", "--metrics", "recall@5,psp@5,coverage@5")
    strata = json.loads(rankfold(*words, "--json").out)["strata"]
    assert [part["name"] for part in strata] == ["head", "torso", "tail"]
    assert sum(part["candidates"] for part in strata) == 30
    assert all(part["queries"] <= 60 for part in strata)
    assert all(list(part["metrics"]) == ["recall@5", "psp@5"] for part in strata)
    table = rankfold(*words).err
    assert "by frequency in train" in table
    lines = {line.split()[1]: line for line in table.splitlines() if len(line.split()) > 4}
    for part in strata:
        assert part["name"] in lines["positives"]
        assert str(part["train_pairs"]) in lines["train"]
        assert f"{part['metrics']['psp@5']:.4f}" in lines["psp@5"]
