"""``rankfold index`` writes an index into the model's folder; other commands use it."""

import json
from pathlib import Path

import pytest
from commands import Command, assert_refused
from rankings import assert_same_keys, ranking_of, ranking_of_json

from rankfold.models.ranking import Ranking


def test_an_index_is_built_shown_and_used(rankfold: Command, model: Path) -> None:
    exact = rankfold("search", model, "--query", "user-1", "--json")
    done = rankfold("index", model, "--kind", "inverted", "--recall", ".9", "--json")
    assert done.code == 0
    result = json.loads(done.out)
    assert result["index"]["kind"] == "inverted"
    assert result["index"]["recall"].keys() == {"1", "10", "100"}
    assert "likeness" not in result
    assert result["index"]["bytes"] > 0
    manifest = json.loads(rankfold("info", model, "--json").out)
    assert manifest["index"]["recall"] == result["index"]["recall"]
    shown = rankfold("info", model).err
    assert "index: inverted, by inner product; finds 1.000 of the best 1, " in shown
    assert " queries); built in " in shown
    approximate = rankfold("search", model, "--query", "user-1", "--json")
    assert_same_keys(ranking_of_json(approximate.out), ranking_of_json(exact.out))
    assert "by an index: inverted" in approximate.err
    assert (
        "by an index" not in rankfold("search", model, "--query", "user-1", "--index", "exact").err
    )


def test_progress_and_results_are_printed(rankfold: Command, model: Path) -> None:
    done = rankfold("index", model, "--similar")
    assert done.code == 0
    assert done.out == ""
    assert "building the auto index of similar candidates" in done.err
    assert "index: exact, by inner product; built in" in done.err  # few candidates
    assert "index of similar candidates: exact, by cosine" in done.err


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("--kind", "faiss"), "there is no index 'faiss'", "known: exact, inverted"),
        (("--recall", "0"), "`recall` must be above 0 and at most 1, got 0", "try"),
    ],
)
def test_invalid_input_gets_an_error_with_a_hint(
    rankfold: Command, model: Path, words: tuple[str, ...], message: str, hint: str
) -> None:
    before = (model / "manifest.json").read_bytes()
    assert_refused(rankfold("index", model, *words), message, hint)
    assert (model / "manifest.json").read_bytes() == before


def test_search_with_exclude_and_allow(rankfold: Command, model: Path) -> None:
    def search(*words: str) -> Ranking:
        done = rankfold("search", model, "--history", "item-1", "--json", *words)
        return ranking_of_json(done.out)

    every = search()
    best = list(zip(every.keys[0], every.scores[0], strict=True))
    keys = [str(key) for key, _ in best]
    without = search("--exclude", keys[0], "--exclude", keys[2], "-k", "2")
    assert_same_keys(without, ranking_of([[best[1], best[3], *best[4:]]]))
    among = search("--allow", keys[4], "--allow", keys[1], "--allow", "no such")
    assert_same_keys(among, ranking_of([[best[1], best[4]]]))
    assert search("--allow", "no such").keys == [[]]
