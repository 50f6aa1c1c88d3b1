"""Models over texts on the command line: fit, evaluate, search, predict, extend, info."""

import json
import re
from pathlib import Path

import polars as pl
import pytest
from commands import Command, assert_refused

pytestmark = pytest.mark.usefixtures("extra_methods")
TOPICS = ["red apples", "blue Äther", "green tea"]


@pytest.fixture
def work(rankfold: Command, tmp_path: Path) -> Path:
    """A folder with thirty documents, their ``data`` and a ``model``."""
    rows = [{"title": f"{TOPICS[i % 3]} {i % 4}", "tags": [f"t{i % 3}"]} for i in range(30)]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pl.DataFrame({"tag": ["t0", "t1", "t2"], "text": TOPICS}).write_csv(tmp_path / "tags.csv")
    words = ("--format", "texts", "--candidate-texts", tmp_path / "tags.csv", "--quiet")
    done = rankfold("prepare", tmp_path / "d.jsonl", "--out", tmp_path / "data", *words)
    assert done.code == 0, done.err
    done = rankfold("fit", "words", tmp_path / "data", "--out", tmp_path / "model")
    assert done.code == 0, done.err
    return tmp_path


def test_search_by_text_as_json(rankfold: Command, work: Path) -> None:
    done = rankfold("search", work / "model", "--text", "Cups of GREEN tea", "-k", 2, "--json")
    assert (done.code, done.err) == (0, "")
    result = json.loads(done.out)
    assert result["query"] == "Cups of GREEN tea"
    expected = ["candidate", "score", "probability", "text"]
    assert [list(entry) for entry in result["results"]] == [expected] * 2
    assert result["results"][0]["candidate"] == "t2"
    assert result["results"][0]["text"] == "green tea"
    near = rankfold(
        *("search", work / "model", "--text", "Cups of GREEN tea", "-k", 2, "--json"),
        *("--index", "auto"),
    )
    assert json.loads(near.out) == result


def test_search_by_text_as_a_table(rankfold: Command, work: Path) -> None:
    shown = rankfold("search", work / "model", "--text", "[bold] blue äther", "-k", 1)
    assert shown.code == 0
    assert "for [bold] blue äther" in shown.err
    assert "t1" in shown.err
    assert "blue Äther" in shown.err
    for text in ("xyzzy", ""):
        shown = rankfold("search", work / "model", "--text", text)
        assert shown.code == 0
        assert "no word of the text is known: these are the most popular" in shown.err


def test_known_queries_and_candidates_still_answer(rankfold: Command, work: Path) -> None:
    result = rankfold("search", work / "model", "--query", "4", "--include-seen", "--json")
    assert json.loads(result.out)["results"][0]["candidate"] == "t1"
    like = json.loads(rankfold("search", work / "model", "--candidate", "t1", "--json").out)
    assert {entry["candidate"] for entry in like["results"]} == {"t0", "t2"}


def test_evaluate_ranks_every_query(rankfold: Command, work: Path) -> None:
    results = []
    for index in ("exact", "auto"):
        words = ("--metrics", "recall@1", "--index", index, "--json")
        done = rankfold("evaluate", work / "model", work / "data", *words)
        assert done.code == 0, done.err
        results.append(json.loads(done.out))
    assert results[0] == results[1]
    assert results[0]["unknown"] == 0
    assert results[0]["metrics"]["recall@1"] == 1.0


def test_predict_texts(rankfold: Command, work: Path) -> None:
    (work / "new.txt").write_text("green cups\nxyzzy\nold blue\n")
    out = work / "out.parquet"
    done = rankfold("predict", work / "model", work / "new.txt", "--out", out, "-k", 2)
    assert done.code == 0, done.err
    output = " ".join(done.err.split())
    assert "3 queries; 1 without a known word, ranked by popularity" in output
    lists = pl.read_parquet(out)
    assert lists.columns == ["query", "rank", "candidate", "score"]
    assert lists.filter(rank=1)["query"].to_list() == [0, 1, 2]
    assert lists.filter(rank=1)["candidate"].to_list()[::2] == ["t2", "t1"]
    pl.DataFrame({"who": ["a"], "said": ["red 麺"]}).write_csv(work / "new.csv")
    columns = ("--query-column", "who", "--text-column", "said", "--with-text", "--json")
    done = rankfold("predict", work / "model", work / "new.csv", "--out", out, *columns)
    assert json.loads(done.out) == {
        "out": str(out),
        "queries": 1,
        "unknown": 0,
        "without_words": 0,
        "left_out": 0,
    }
    first = pl.read_parquet(out).row(0, named=True)
    assert (first["query"], first["candidate"], first["text"]) == ("a", "t0", "red apples")


def test_predict_leaves_out_lines_that_are_not_utf_8(rankfold: Command, work: Path) -> None:
    (work / "new.txt").write_bytes(b"green cups\ngr\xe9en\nold blue\n")
    words = ("predict", work / "model", work / "new.txt", "--out", work / "out.parquet", "-k", 1)
    done = rankfold(*words)
    assert done.code == 0, done.err
    assert "1 row that could not be used" in " ".join(done.err.split())
    assert "new.txt:2" in done.err
    assert pl.read_parquet(work / "out.parquet")["query"].to_list() == [0, 2]
    done = rankfold(*words, "--strict")
    assert done.code != 0
    assert "1 row with bytes that are not UTF-8 (new.txt:2)" in " ".join(done.err.split())


def test_extend_with_texts(rankfold: Command, work: Path) -> None:
    pl.DataFrame({"tag": ["t9", "t8"], "text": ["green apples", "qwerty"]}).write_csv(
        work / "new.csv"
    )
    done = rankfold("extend", work / "model", work / "new.csv", "--key-column", "tag")
    assert done.code == 0, done.err
    output = " ".join(done.err.split())
    assert "2 candidates added, 5 in all" in output
    assert "1 have no word that the model knows: they score 0 for any text" in output
    result = rankfold("search", work / "model", "--text", "green apples", "-k", 1, "--json")
    assert json.loads(result.out)["results"][0]["candidate"] == "t9"
    output = " ".join(rankfold("info", work / "model").err.split())
    assert "2 candidates were added from their texts" in output
    assert "ranks by text: 10 distinct tokens" in output
    assert rankfold("verify", work / "model").code == 0


def test_extend_with_lines(rankfold: Command, work: Path) -> None:
    (work / "new.txt").write_text("t9\tgreen apples\nt8\tblue tea\n")
    done = rankfold("extend", work / "model", work / "new.txt")
    assert done.code == 0, done.err
    assert "2 candidates added, 5 in all" in " ".join(done.err.split())


def test_info_counts_tokens_with_vectors(rankfold: Command, work: Path) -> None:
    (work / "w.vec").write_text("2 2\ngreen 1 0\nxyzzy 0 1\n")
    few = [f"{name}=1" for name in ("encoder_epochs", "classifier_epochs")]
    settings = [w for s in ("width=2", f"vectors={work / 'w.vec'}", *few) for w in ("--set", s)]
    done = rankfold("fit", "siamesexml", work / "data", "--out", work / "m", *settings)
    assert done.code == 0, done.err
    output = " ".join(rankfold("info", work / "m").err.split())
    assert "1 of 10 tokens started from vectors in a file" in output


def test_methods_show_their_data_kind(rankfold: Command) -> None:
    listed = json.loads(rankfold("methods", "--json").out)["methods"]
    kinds = {entry["name"]: entry["data_kind"] for entry in listed}
    assert (kinds["words"], kinds["rg2"]) == ("texts", "interactions")
    assert "takes texts" in rankfold("methods", "words").err


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("search", "model", "--history", "t1"), "words ranks by text, not by history", "--text"),
        (("search", "pairs", "--text", "tea"), "popularity does not rank by text", "words"),
        (("search", "model", "--text", "a", "--query", "1"), "takes one input", "--text"),
        (("search", "own", "--text", "a", "--index", "auto"), "has no vectors", "exact"),
        (("search", "model", "--text", "a", "--index", "x"), "there is no index 'x'", "exact"),
        (("fit", "words", "table", "--out", "m"), "the data has no texts", "--format texts"),
        (("fit", "words", "data", "--out", "m", "--add", "data"), "cannot add pairs", "text"),
        (("extend", "own", "tags.csv"), "overlap cannot add candidates", "fit it again"),
        (("predict", "model", "x.csv", "--out", "o.parquet"), "cannot tell which", "--text-column"),
        (("forget", "own", "1"), "overlap has learnt from its queries", "fit again"),
    ],
)
def test_invalid_input_gets_an_error_with_a_hint(
    rankfold: Command,
    work: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    message: str,
    hint: str,
) -> None:
    monkeypatch.chdir(work)
    (work / "x.csv").write_text("a,b\n1,2\n")
    assert rankfold("fit", "popularity", "data", "--out", "pairs").code == 0
    assert rankfold("fit", "overlap", "data", "--out", "own").code == 0
    (work / "p.csv").write_text("query,candidate\na,x\nb,y\na,y\n")
    assert rankfold("prepare", "p.csv", "--out", "table", "--split", "1,0,0").code == 0
    assert_refused(rankfold(*words), message, hint)


def test_a_damaged_model_is_refused(rankfold: Command, work: Path) -> None:
    (file,) = (work / "model").glob("tokenizer-*.json")
    file.write_bytes(file.read_bytes().replace(b"tea", b"TEA"))
    done = rankfold("search", work / "model", "--text", "tea")
    assert done.code == 2
    assert file.name in done.err


def test_fit_prints_the_chosen_mix(rankfold: Command, work: Path) -> None:
    options = ("--set", "width=8", "--set", "encoder_epochs=1", "--set", "joint_epochs=1")
    done = rankfold("fit", "siamesexml", work / "data", "--out", work / "siamese", *options)
    assert done.code == 0, done.err
    output = " ".join(done.err.split())
    assert re.search(
        r"chosen from \d+ mixes, validation ndcg@10 [01]\.\d+: classifier_share", output
    )
