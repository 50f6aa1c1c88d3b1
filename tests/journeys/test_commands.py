"""On the command line: from a table to a list, a filter, an explanation, a card and an export."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from commands import Command

OPTIONS = ("--query-column", "Leser", "--candidate-column", "Buch", "--grade-column", "Note")


def test_4_prepare_says_what_it_read(rankfold: Command, library: Path, tmp_path: Path) -> None:
    loans, out = library / "loans.csv", tmp_path / "data"
    done = rankfold("prepare", loans, *OPTIONS, "--decimal", ",", "--out", out)
    assert done.code == 0, done.err
    assert "Leser" in done.err
    assert "r000" in done.err  # sample rows
    assert "for a candidate n/a, which counts as missing" in done.err
    assert "90 queries" in done.err
    same = rankfold("prepare", loans, *OPTIONS[:3], "Leser", "--out", tmp_path / "same")
    assert same.code == 2
    assert "Leser" in same.err
    (tmp_path / "parts").mkdir()
    rows = pl.read_csv(loans, separator=";").drop_nulls()
    rows[:300].write_parquet(tmp_path / "parts" / "part-0.parquet")
    rows[300:].write_parquet(tmp_path / "parts" / "part-1.parquet")
    done = rankfold("prepare", tmp_path / "parts", *OPTIONS[:4], "--out", tmp_path / "two")
    assert done.code == 0, done.err


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory, library: Path) -> Path:
    import rankfold as rf

    home = tmp_path_factory.mktemp("shop")
    data = rf.prepare(
        library / "loans.csv",
        query_column="Leser",
        candidate_column="Buch",
        candidate_features=library / "books.csv",
        out=home / "data",
    )
    rf.fit("rg2", data, width=8, out=home / "model")
    return home


def test_5_fit_shows_one_line_and_predict_writes_any_file(
    rankfold: Command, fitted: Path, tmp_path: Path
) -> None:
    done = rankfold("fit", "ials", fitted / "data", "--out", tmp_path / "m", "--set", "width=4")
    assert done.code == 0, done.err
    assert "ndcg@10" in done.err
    pl.DataFrame({"Leser": ["r005", "r006"]}).write_csv(tmp_path / "some.csv")
    for suffix in ("csv", "jsonl", "parquet"):
        out = tmp_path / f"lists.{suffix}"
        done = rankfold("predict", fitted / "model", tmp_path / "some.csv", "--out", out, "-k", 3)
        assert done.code == 0, done.err
    lists = [pl.read_csv(tmp_path / "lists.csv"), pl.read_ndjson(tmp_path / "lists.jsonl")]
    expected = pl.read_parquet(tmp_path / "lists.parquet").drop("score")
    assert all(one.drop("score").cast(dict(expected.schema)).equals(expected) for one in lists)
    assert "width" in rankfold("methods", "ials").err
    assert rankfold("--version").out.startswith("rankfold")
    assert rankfold("--show-completion", "bash").code in (0, 1)
    assert rankfold("search", fitted / "model", "--query", "nobody").code == 2


def test_6_filters_rules_and_explanations(rankfold: Command, fitted: Path) -> None:
    def found(*options: str) -> Any:
        ask = ("search", fitted / "model", "--query", "r001", "-k", 5, "--json", *options)
        return json.loads(rankfold(*ask).out)["results"]

    genre = {f"B-{n:02}": ("crime", "garden", "travel")[n % 3] for n in range(36)}
    cheap = found("--where", "price < 20 and genre = 'garden'")
    assert {genre[one["candidate"]] for one in cheap} == {"garden"}
    assert max(int(one["candidate"][2:]) for one in cheap) < 15
    mixed = [genre[one["candidate"]] for one in found("--at-most", "genre=2")]
    assert max(map(mixed.count, mixed)) == 2
    assert found("--pin", "B-35")[0]["candidate"] == "B-35"
    (first, *_) = found("--explain")
    assert first["because"][0]["key"].startswith("B-")
    parts = sum(one["score"] for one in first["because"]) + first["rest"]
    assert parts == pytest.approx(first["score"], rel=1e-4)
    wrong = rankfold("search", fitted / "model", "--query", "r001", "--where", "prise < 20")
    assert wrong.code == 2
    assert "price" in wrong.err
    metrics = "novelty@5,diversity@5,gini@5,serendipity@5,calibration@5"
    assert rankfold("evaluate", fitted / "model", fitted / "data", "--metrics", metrics).code == 0


def test_7_tracks_cards_and_exports(rankfold: Command, fitted: Path, tmp_path: Path) -> None:
    logs = f"csv:{tmp_path / 'logs'}"
    command = ("fit", "rg2", fitted / "data", "--out", tmp_path / "m", "--track", logs)
    assert rankfold(*command, "--set", "width=4").code == 0
    assert len([*(tmp_path / "logs").iterdir()]) == 2
    assert rankfold("evaluate", tmp_path / "m", fitted / "data", "--card").code == 0
    card = (tmp_path / "m" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name")
    assert "95 % interval" in card
    done = rankfold("export", tmp_path / "m", "--out", tmp_path / "v", "--data", fitted / "data")
    assert done.code == 0
    assert "by the vectors alone" in done.err
    assert len(pl.read_parquet(tmp_path / "v" / "queries.parquet")) == 90
