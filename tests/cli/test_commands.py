"""The commands from a table to a ranking, and their errors."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from commands import Command, assert_refused
from rankings import assert_same_keys, ranking_of, ranking_of_json

from rankfold.cli import COMMANDS
from rankfold.data import prepare as preparing
from rankfold.index import INDEXES
from rankfold.tasks import fit as fitting
from rankfold.tasks.diagnose import DIAGNOSES


def test_prepare_prints_what_it_read_and_dropped(
    rankfold: Command, ratings: Path, tmp_path: Path
) -> None:
    with ratings.open("a") as file:
        file.write("user-1,item-2,x,5\nuser-1\n")
    done = rankfold("prepare", ratings, "--out", tmp_path / "d", "--min-grade", "2", "--kcore", "2")
    assert done.code == 0
    assert done.out == ""
    n = len(ratings.read_text().splitlines())
    assert f"1 for a grade that is not a number (ratings.csv:{n - 1})" in done.err
    assert f"1 for a wrong number of columns (ratings.csv:{n})" in done.err
    assert "for grade below 2" in done.err
    assert "60 queries x 30 candidates" in done.err


def test_prepare_strict_writes_nothing(rankfold: Command, ratings: Path, tmp_path: Path) -> None:
    with ratings.open("a") as file:
        file.write("user-1,,3,5\n")
    done = rankfold("prepare", ratings, "--out", tmp_path / "d", "--strict")
    assert done.code == 2
    assert "1 row with a missing candidate (ratings.csv:" in done.err
    assert not (tmp_path / "d").exists()


def test_evaluate_json_is_one_document(rankfold: Command, model: Path) -> None:
    done = rankfold(
        "evaluate", model, model.with_name("data"), "--json", "--metrics", "ndcg@10,hit@5"
    )
    assert done.code == 0
    assert done.err == ""
    result = json.loads(done.out)
    assert result["split"] == "test"
    assert result["queries"] == 60
    assert list(result["metrics"]) == ["ndcg@10", "hit@5"]
    assert result["metrics"]["ndcg@10"] > 0.3


def test_search_json_names_candidates_and_scores(rankfold: Command, model: Path) -> None:
    done = rankfold("search", model, "--query", "user-3", "-k", "4", "--json")
    result = json.loads(done.out)
    assert result["query"] == "user-3"
    assert len(result["results"]) == 4
    scores = [entry["score"] for entry in result["results"]]
    assert scores == sorted(scores, reverse=True)
    groups = [int(entry["candidate"].removeprefix("item-")) % 3 for entry in result["results"]]
    assert groups[0] == 0  # user 3 is of group 0


def test_search_explains_its_scores(rankfold: Command, model: Path) -> None:
    words = ("search", model, "--history", "item-1,item-4", "-k", "2", "--explain")
    for result in json.loads(rankfold(*words, "--json").out)["results"]:
        assert {one["key"] for one in result["because"]} == {"item-1", "item-4"}
        total = sum(one["score"] for one in result["because"]) + result["rest"]
        assert total == pytest.approx(result["score"])
        assert result["exact"] is True
    shown = " ".join(rankfold(*words).err.split())
    assert "because" in shown
    assert "item-4 +" in shown


def test_search_by_history_and_by_candidate(rankfold: Command, model: Path) -> None:
    by_history = json.loads(
        rankfold("search", model, "--history", "item-1,item-4", "-k", "3", "--json").out
    )
    first = by_history["results"][0]["candidate"]
    assert int(first.removeprefix("item-")) % 3 == 1
    assert first not in ("item-1", "item-4")
    like = json.loads(rankfold("search", model, "--candidate", "item-2", "-k", "2", "--json").out)
    assert int(like["results"][0]["candidate"].removeprefix("item-")) % 3 == 2


def test_an_empty_history_shows_the_most_popular(rankfold: Command, model: Path) -> None:
    done = rankfold("search", model, "--history", "", "-k", "30", "--json")
    assert done.code == 0
    assert done.err == "the history is empty: these are the most popular candidates\n"
    result = [(-entry["score"], entry["candidate"]) for entry in json.loads(done.out)["results"]]
    table = pl.read_csv(model.with_name("ratings.csv"))
    assert result == sorted(result)
    assert len(result) == table["item"].n_unique() == 30
    shown = rankfold("search", model, "--history", "", "-k", "1")
    assert "these are the most popular" in shown.err
    assert result[0][1] in shown.err
    assert rankfold("search", model, "--history", "", "--json", "--quiet").err == ""


def test_forget_removes_queries(rankfold: Command, model: Path) -> None:
    done = rankfold("forget", model, "user-3", "user-7", "--json")
    assert done.code == 0
    assert done.err == ""
    assert json.loads(done.out) == {
        "model": str(model),
        "forgotten": 2,
        "unknown": [],
        "queries": 58,
    }
    assert "58 queries" in rankfold("info", model).err
    assert rankfold("search", model, "--query", "user-3").code == 2
    assert rankfold("search", model, "--query", "user-4").code == 0
    done = rankfold("forget", model, "user-4", "user-3")
    assert done.code == 0
    assert "1 forgotten, 57 queries left" in done.err
    assert "unknown query 'user-3': misspelt, or forgotten before" in done.err


def test_predict_writes_a_row_per_result(rankfold: Command, model: Path, tmp_path: Path) -> None:
    pl.DataFrame({"user": ["user-5", "nobody", "user-1"]}).write_csv(tmp_path / "who.csv")
    done = rankfold(
        "predict", model, tmp_path / "who.csv", "--out", tmp_path / "l.parquet", "-k", 3
    )
    assert done.code == 0
    assert "1 unknown" in done.err
    table = pl.read_parquet(tmp_path / "l.parquet")
    assert table.columns == ["query", "rank", "candidate", "score"]
    assert table["query"].to_list() == ["user-5"] * 3 + ["user-1"] * 3
    assert table["rank"].to_list() == [1, 2, 3] * 2
    result = rankfold("search", model, "--query", "user-5", "--json").out
    first = table.head(3).select("candidate", "score").rows()
    assert_same_keys(ranking_of([first]), ranking_of_json(result))
    strict = rankfold(
        "predict", model, tmp_path / "who.csv", "--out", tmp_path / "m.parquet", "--strict"
    )
    assert strict.code == 2
    assert "unknown query 'nobody'" in strict.err
    assert not (tmp_path / "m.parquet").exists()


def test_methods_json_lists_settings(rankfold: Command) -> None:
    methods = json.loads(rankfold("methods", "--json").out)["methods"]
    plain = next(entry for entry in methods if entry["name"] == "rg2-plain")
    assert plain["data_kind"] == "interactions"
    assert plain["paper"] == "rg2"
    assert plain["config"]["width"] == 64


def test_info_and_verify(rankfold: Command, model: Path) -> None:
    about = rankfold("info", model)
    assert about.code == 0
    assert "rg2-plain" in about.err
    assert "60 queries x 30 candidates" in about.err
    assert json.loads(rankfold("info", model, "--json").out)["kind"] == "model"
    assert rankfold("verify", model).code == 0
    tensors = next(model.glob("tensors-*"))
    content = bytearray(tensors.read_bytes())
    content[-1] ^= 1
    tensors.write_bytes(content)
    for command in (("verify", model), ("search", model, "--query", "user-1")):
        done = rankfold(*command)
        assert done.code == 2
        assert tensors.name in done.err


def test_verify_lists_and_removes_what_no_manifest_names(rankfold: Command, model: Path) -> None:
    mine, left = model / "notes.md", model / "keys-0123456789abcdef.parquet"
    beside = model.with_name(f".{model.name}.writing-0123456789abcdef")
    mine.write_text("mine")
    left.write_text("left by a killed write")
    beside.mkdir()
    done = rankfold("verify", model)
    assert done.code == 0
    assert f"2 leftovers of earlier writes: {left.name}, {beside.name}" in done.err
    assert "not in its manifest: notes.md" in done.err
    document = json.loads(rankfold("verify", model, "--clean", "--json").out)
    assert (document["leftovers"], document["foreign"]) == ([], [str(mine)])
    assert (mine.exists(), left.exists(), beside.exists()) == (True, False, False)


@pytest.mark.parametrize("out", [("--out", ""), ("--out=",), ("--out", "/"), ("--out", "..")])
def test_an_out_without_a_name_is_refused(
    rankfold: Command, model: Path, out: tuple[str, ...]
) -> None:
    """An unset variable in ``--out "$DIR"`` must not mean the current folder."""
    done = rankfold("fit", "popularity", model.with_name("data"), *out)
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert "Traceback" not in done.err


def test_completion_can_be_installed(rankfold: Command) -> None:
    assert "--install-completion" in rankfold("--help").out


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("prepare", "nowhere.csv", "--out", "d"), "there is no file nowhere.csv", "ratings.csv"),
        (("prepare", "ratings.csv", "--out", "d", "--query-column", "x"), "no column 'x'", "user"),
        (("prepare", "--source", "movies", "--out", "d"), "got 'movies'", "public data set"),
        (("prepare", "--out", "d"), "nothing to read", "--source"),
        (("prepare", "ratings.csv", "--out", "d", "--split", "1,2"), "the split 1,2", "0.8"),
        (("prepare", "ratings.csv", "--out", "d", "--kcore", "99"), "99-core", "--kcore"),
        (("prepare", "ratings.csv", "--out", "d", "--min-grade", "9"), "grade below 9", "is 5"),
        (("fit", "rg9", "data", "--out", "m"), "no method 'rg9'", "did you mean"),
        (("fit", "rg2-plain", "nowhere", "--out", "m"), "no folder nowhere", "prepare"),
        (("fit", "rg2-plain", "data", "--out", "m", "--set", "widht=3"), "'widht'", "'width'"),
        (("fit", "rg2-plain", "data", "--out", "m", "--set", "width"), "--set width", "key=value"),
        (("fit", "rg2-plain", "data", "--out", "m", "--set", "seed=3"), "'seed'", "width"),
        (("predict", "model", "ratings.csv", "--out", "data"), "cannot write data", "file"),
        (("predict", "model", "ratings.csv", "--out", "x/l.parquet"), "no folder", "create"),
        (("predict", "model", "ratings.csv", "--out", "ratings.csv"), "is the input", "another"),
        (("predict", "model", "r*.csv", "--out", "./ratings.csv"), "is the input", "another"),
        (("predict", "model", "ratings.csv", "--out", "x" * 300 + ".csv"), "too long", "shorter"),
        (("fit", "rg2-plain", "data", "--out", "x" * 300), "too long", "shorter"),
        (("fit", "rg2-plain", "data", "--out", "m", "--config", "x.toml"), "x.toml", "TOML"),
        (("fit", "rg2-plain", "data", "--out", "ratings.csv"), "not written by rankfold", "--out"),
        (("fit", "rg2-plain", "data", "--out", "data"), "is a data folder", "--out"),
        (("evaluate", "data", "data"), "is a data folder, not a model", "info"),
        (("evaluate", "model", "data", "--split", "dev"), "'dev'", "test"),
        (("evaluate", "model", "data", "--metrics", "ncdg@5"), "'ncdg'", "ndcg@5"),
        (("search", "model", "--query", "user-x"), "unknown query 'user-x'", "user-"),
        (("search", "model"), "takes one input", "--query"),
        (("add", "model", "nowhere"), "no folder", "prepare"),
        (("add", "data", "data"), "is a data", "info"),
        (("forget", "data", "user-1"), "is a data folder, not a model", "info"),
        (("info", "ratings.csv"), "not a rankfold folder", "rankfold"),
    ],
)
def test_invalid_input_gets_one_error_with_a_hint(
    rankfold: Command,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    message: str,
    hint: str,
) -> None:
    monkeypatch.chdir(model.parent)
    assert_refused(rankfold(*words), message, hint)
    assert not (model.parent / "d").exists()
    assert not (model.parent / "m").exists()


def test_demo_shows_lists_compares_and_reports(
    rankfold: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankfold.cli.demo.COMPARED", ("popularity", "puresvd"))
    fit, prepare = fitting.fit, preparing.prepare

    def small(**options: Any) -> Any:
        return prepare(**options, kcore=4)

    def narrow(method: str, *given: Any, **options: Any) -> Any:
        return fit(method, *given, **({"width": 16} if method == "rg2" else {}), **options)

    import_module("rankfold.tasks.compare")  # before the patch: it keeps the `fit` that it imports
    monkeypatch.setattr("rankfold.data.prepare.prepare", small)
    monkeypatch.setattr("rankfold.tasks.fit.fit", narrow)
    done = rankfold("demo", "--out", tmp_path / "demo")
    assert done.code == 0
    assert "rg2" in done.err
    assert "python3-pandas:" in done.err
    assert (tmp_path / "demo" / "rg2" / "manifest.json").exists()
    page = tmp_path / "demo" / "comparison" / "report.html"
    assert str(page) in done.err
    assert "is best, all with width 64: ndcg@10" in page.read_text(encoding="utf-8")


def test_help_names_every_command_and_version_works() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rankfold", "--help"], capture_output=True, text=True, check=True
    )
    for name in COMMANDS:
        assert name in done.stdout
    assert COMMANDS.keys() >= {"demo", "prepare", "fit", "evaluate", "search", "predict", "forget"}
    done = subprocess.run(
        [sys.executable, "-m", "rankfold", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("rankfold ")


@pytest.mark.parametrize(("command", "registry"), [("index", INDEXES), ("diagnose", DIAGNOSES)])
def test_help_of_a_command_names_the_registry(
    rankfold: Command, command: str, registry: dict[str, object]
) -> None:
    shown = rankfold(command, "--help").out
    assert all(name in shown for name in registry)
    assert "{rankfold" not in shown


def test_popularity_has_no_similar_candidates(
    rankfold: Command, model: Path, tmp_path: Path
) -> None:
    assert rankfold("fit", "popularity", model.with_name("data"), "--out", tmp_path / "p").code == 0
    done = rankfold("search", tmp_path / "p", "--candidate", "item-1")
    assert done.code == 2
    assert "cannot find similar candidates" in done.err


def test_the_path_of_a_fit_can_be_drawn(rankfold: Command, model: Path, tmp_path: Path) -> None:
    data = model.with_name("data")
    done = rankfold("fit", "rg2", data, "--out", tmp_path / "m", "--set", "width=4")
    assert "chosen by validation from" in done.err
    assert rankfold("info", tmp_path / "m", "--plot", tmp_path / "path.svg").code == 0
    assert (tmp_path / "path.svg").read_text().startswith("<svg")
    failed = rankfold("info", model, "--plot", tmp_path / "no.svg")
    assert failed.code == 2
    assert "no path to draw" in failed.err
    assert not (tmp_path / "no.svg").exists()


def test_methods_lists_the_settings_of_one(rankfold: Command) -> None:
    done = rankfold("methods", "xir")
    assert done.code == 0
    assert "cache_share" in done.err
    assert "systematic" in done.err
    assert "learning rate" in done.err
    assert "ials" not in done.err
    (method,) = json.loads(rankfold("methods", "xir", "--json").out)["methods"]
    assert method["name"] == "xir"
    settings = method["settings"]
    assert {key: setting["default"] for key, setting in settings.items()} == method["config"]
    assert settings["draw"]["values"] == ["systematic", "multinomial"]
    assert settings["clip"]["bounds"] == {"above": 0}
    assert settings["cache_share"]["bounds"] == {"at_least": 0, "at_most": 1}
    assert settings["lr"]["help"] == "learning rate"
    assert rankfold("methods", "xyz").code == 2


def test_predict_refuses_other_suffixes(rankfold: Command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "users.csv").write_text("query\nalice\n")
    done = rankfold("predict", model, tmp_path / "users.csv", "--out", tmp_path / "lists.txt")
    assert done.code == 2
    assert "lists.parquet" in done.err
    assert not (tmp_path / "lists.csv").exists()
