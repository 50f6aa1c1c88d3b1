"""Documents with labels become data."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from document_samples import (
    LABELS,
    as_csv,
    as_parquet,
    documents,
    expected_pairs,
    pairs_of,
    rows,
    text_rows,
)

from rankfold.data.prepare import prepare
from rankfold.data.read.queries import QueryColumns, read_queries
from rankfold.data.read.reading import Reading
from rankfold.errors import UserError

# ---------------------------------------------------------------------------------- documents


@pytest.mark.parametrize("mark", ["|", ";", ", ", " / "])
def test_table_of_text(mark: str, tmp_path: Path) -> None:
    separator = "/" if mark == " / " else None
    data = prepare(as_csv(tmp_path / "d.csv", mark), format="texts", label_separator=separator)
    assert pairs_of(data) == expected_pairs()


@pytest.mark.parametrize(
    "labels",
    [
        ["<c++><node.js>", "<c++>", ""],
        ["['c++', 'node.js']", "['c++']", "[]"],
        ['["c++","node.js"]', " [c++] ", "[ ]"],
    ],
)
def test_texts_that_are_lists(labels: list[str]) -> None:
    table = pl.DataFrame({"id": ["a", "b", "c"], "text": ["x", "y", "z"], "labels": labels})
    assert pairs_of(prepare(table, format="texts")) == {"a": {"c++", "node.js"}, "b": {"c++"}}
    odd = table.with_columns(labels=pl.Series(["<c++>", "c", "d"]))
    assert pairs_of(prepare(odd, format="texts"))["a"] == {"<c++>"}


def test_lists_of_labels(tmp_path: Path) -> None:
    for path in (as_parquet(tmp_path / "d.parquet"), documents(tmp_path / "d.jsonl")):
        data = prepare(path, format="texts")
        assert pairs_of(data) == expected_pairs()
        assert data.kind == "texts"


def test_lists_stay_lists_despite_a_damaged_line(tmp_path: Path) -> None:
    path = documents(tmp_path / "d.jsonl")
    path.write_text("\n{nonsense\n" + path.read_text())
    data = prepare(path, format="texts")
    assert pairs_of(data) == expected_pairs()
    assert data.summary["dropped"][0]["first"] == ["d.jsonl:2"]


def test_rows_without_text_or_labels_are_kept(tmp_path: Path) -> None:
    data = prepare(documents(tmp_path / "d.jsonl"), format="texts")
    words = text_rows(data, "query")
    assert words["d4"] == []
    assert words["d3"] == ["the", "cat"]
    assert "d3" not in pairs_of(data)
    summary = data.summary["texts"]
    assert summary["query"]["without_pairs"] == 1
    assert (summary["query"]["empty"], summary["query"]["without_text"]) == (1, 1)


def test_labels_are_known_by_their_keys(tmp_path: Path) -> None:
    data = prepare(documents(tmp_path / "d.jsonl"), format="texts")
    assert text_rows(data, "candidate")["big animals"] == ["big", "animals"]
    assert data.summary["texts"]["candidate"]["without_text"] == 4


def test_texts_of_labels(tmp_path: Path) -> None:
    table = pl.DataFrame({"labels": ["cat", "dog", "yak"], "name": ["a Felis", None, "Bos mutus"]})
    table.write_csv(tmp_path / "labels.csv")
    options = {"format": "texts", "candidate_texts": tmp_path / "labels.csv"}
    data = prepare(documents(tmp_path / "d.jsonl"), out=tmp_path / "data", **options)
    words = text_rows(data, "candidate")
    assert words["cat"] == ["a", "felis"]
    assert words["dog"] == ["dog"]
    assert words["yak"] == ["bos", "mutus"]  # it can be ranked without pairs
    summary = data.summary["texts"]["candidate"]
    assert (summary["without_pairs"], summary["without_text"]) == (1, 3)
    texts = data.candidates.texts
    assert texts is not None
    assert dict(zip(data.candidates.keys, texts, strict=True))["cat"] == "a Felis"


KEYED = b"cat\ta Felis\n\ndog \tb\tc\r\nyak\t\nno tab\nb\xe9d\tx\n\tx\n"


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("l.txt", {}),
        ("l.txt.gz", {}),
        ("l", {}),
        ("l.txt", {"header": False}),
        ("l.tsv", {"header": False}),
    ],
)
def test_lines_of_keys_and_texts_are_read_whole(
    name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    content = gzip.compress(KEYED) if name.endswith(".gz") else KEYED
    (tmp_path / name).write_bytes(content)
    options = {"format": "texts", "candidate_texts": tmp_path / name, **options}
    data = prepare(documents(tmp_path / "d.jsonl"), **options)
    texts = data.candidates.texts
    assert texts is not None
    shown = dict(zip(data.candidates.keys, texts, strict=True))
    assert (shown["cat"], shown["dog"], shown["yak"]) == ("a Felis", "b\tc", "yak")
    dropped = data.summary["texts"]["candidate"]["dropped"]
    assert {entry["why"]: entry["first"] for entry in dropped} == {
        "no tab between key and text": [f"{name}:5"],
        "bytes that are not UTF-8": [f"{name}:6"],
        "a missing key": [f"{name}:7"],
    }
    with pytest.raises(UserError, match="no tab between key and text"):
        prepare(tmp_path / "d.jsonl", strict=True, **options)


def test_lines_of_queries_and_texts_are_read_whole(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("".join(f"{i},{LABELS[i % 3]}\n" for i in range(20)))
    (tmp_path / "q.tsv").write_text("".join(f"{i}\ttext\n" for i in range(20)))
    settings = {
        "header": False,
        "split": (1, 0, 0),
        "query_column": "column_0",
        "candidate_column": "column_1",
    }
    data = prepare(tmp_path / "pairs.csv", query_texts=tmp_path / "q.tsv", **settings)
    assert text_rows(data, "query") == {i: ["text"] for i in range(20)}


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("l.txt", "labels\twhat\ncat\tFelis\n", {}),
        ("l.txt", "code\ttitle\ncat\tFelis\n", {}),
        ("l.txt", '"label","what"\ncat,Felis\n', {}),
        ("l.txt", "code,what\ncat,Felis\n", {"text_column": "what"}),
        ("l.tsv", "code\twhat\ncat\tFelis\n", {}),
        ("l.csv", "code,what\ncat,Felis\n", {}),
        ("l.csv", "code,name\ncat,Felis\n", {"header": False}),
        ("l.jsonl", '{"code": "cat", "what": "Felis"}\n', {"header": False}),
    ],
)
def test_tables_of_texts_keep_their_header(
    name: str, content: str, options: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    (tmp_path / "d.txt").write_text(
        "what\tlabels\na cat\tcat\n" if "text" in options else "a\tcat\n"
    )
    settings: dict[str, Any] = {"format": "texts", "split": (1, 0, 0), **options}
    data = prepare(tmp_path / "d.txt", candidate_texts=tmp_path / name, **settings)
    assert text_rows(data, "candidate") == {"cat": ["felis"]}


def test_bad_lines_of_keys_and_texts_are_refused(tmp_path: Path) -> None:
    path = documents(tmp_path / "d.jsonl")
    for name, content, message in (
        ("l.txt", "cat\tx\ncat\ty\n", "l.txt has the key 'cat' more than once"),
        ("l.txt", "", "l.txt has no usable rows"),
        ("l.csv", "cat,x\n", "l.csv has no usable rows"),
    ):
        (tmp_path / name).write_text(content)
        options = {"format": "texts", "candidate_texts": tmp_path / name, "header": False}
        assert message in _message(lambda options=options: prepare(path, **options))  # type: ignore[misc]


def test_numbered_labels_without_names_have_no_text(tmp_path: Path) -> None:
    (tmp_path / "d.txt").write_text("the cat\t1 2\na dog\t2\nemus\t3\n")
    data = prepare(tmp_path / "d.txt", format="texts", split=(1, 0, 0))
    assert data.candidate_texts is None
    assert data.candidates.texts is None
    assert pairs_of(data) == {0: {1, 2}, 1: {2}, 2: {3}}


@pytest.mark.parametrize("name", ["d.txt", "d.tsv"])
def test_lines(name: str, tmp_path: Path) -> None:
    content = b"the cat\tx y\n\na \tdog\tx\r\nno labels\t\nno tab\nb\xe9d\ty\n"
    (tmp_path / name).write_bytes(content)
    data = prepare(tmp_path / name, format="texts", split=(1, 0, 0), header=name == "d.txt")
    assert pairs_of(data) == {0: {"x", "y"}, 2: {"x"}}
    assert text_rows(data, "query") == {0: ["the", "cat"], 2: ["a", "dog"], 3: []}
    reasons = {entry["why"]: entry["first"] for entry in data.summary["dropped"]}
    expected = {"no tab between text and labels": [f"{name}:5"]}
    assert reasons == expected | {"bytes that are not UTF-8": [f"{name}:6"]}


def test_rows_are_numbered_as_in_predict(tmp_path: Path) -> None:
    """Unusable rows count, in all files."""
    contents = {
        "a.txt": "no tab\n\nthe cat\tx\na dog\ty\n",
        "b.jsonl": '{"text": "an emu", "labels": ["x", null]}\nbroken\n\n'
        '{"text": "emus", "labels": {"x": 1}}\n{"text": "cats", "labels": ["y"]}\n',
        "c.csv": 'text,labels\n"a ""dog""",x\none,two,three\nthe emu,y\n',
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    paths = [tmp_path / name for name in contents]
    data = prepare(paths, format="texts", split=(1, 0, 0))
    assert pairs_of(data) == {2: {"x"}, 3: {"y"}, 4: {"x"}, 7: {"y"}, 8: {"x"}, 10: {"y"}}
    reading = Reading(tmp_path)
    queries = read_queries(paths, QueryColumns("none"), reading)
    words = {key: text for block in queries.blocks(99) for key, text in zip(*block, strict=True)}
    assert {key: words[key] for key in (3, 4, 7, 8, 10)} == {
        3: "a dog",
        4: "an emu",
        7: "cats",
        8: 'a "dog"',
        10: "the emu",
    }


def test_lines_of_another_encoding_are_refused(tmp_path: Path) -> None:
    (tmp_path / "d.txt").write_text("the cat\tx\na dog\ty\n", encoding="utf-16")
    for options in ({}, {"candidate_texts": tmp_path / "d.txt"}):
        message = _message(lambda o=options: prepare(tmp_path / "d.txt", format="texts", **o))  # type: ignore[misc]
        assert message == "d.txt is not UTF-8 text"
    with pytest.raises(UserError, match="not UTF-8 text"):
        read_queries([tmp_path / "d.txt"], QueryColumns(), Reading(tmp_path))


def test_pairs_with_texts(tmp_path: Path) -> None:
    pairs = [(i, LABELS[i % 3]) for i in range(20)]
    pl.DataFrame(pairs, ["doc", "label"], orient="row").write_csv(tmp_path / "pairs.csv")
    texts = pl.DataFrame({"doc": range(1, 22), "words": [f"text {i}" for i in range(1, 22)]})
    data = prepare(tmp_path / "pairs.csv", query_texts=texts)
    words = text_rows(data, "query")
    assert words[0] == []
    assert pairs_of(data) == {i: {label} for i, label in pairs}
    assert {20, 21} <= set(words)
    in_train = set(data.queries.take(data.split("train").query_of_pair().long()))
    assert all((f"{i}" in words[i]) == (i in in_train) for i in range(1, 22))


def test_given_splits_carve_whole_documents(tmp_path: Path) -> None:
    made = rows(40)
    for name, part in (("train", made[:30]), ("test", made[30:])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    files = {name: tmp_path / f"{name}.jsonl" for name in ("train", "test")}
    data = prepare(format="texts", **files)
    of = {name: set(data.queries.take(data.split(name).query_of_pair().long())) for name in
          ("train", "validation", "test")}  # fmt: skip
    assert of["test"] == {row["id"] for row in made[30:]}
    assert len(of["validation"]) == 3
    assert not of["validation"] & of["train"]


def test_words_of_test_documents_are_not_learnt(tmp_path: Path) -> None:
    def number(made: list[dict[str, Any]]) -> None:
        for i, row in enumerate(made):
            row["title"] = f"only{i} the"

    data = prepare(documents(tmp_path / "d.jsonl", number), format="texts")
    words = text_rows(data, "query")
    train = set(data.queries.take(data.split("train").query_of_pair().long()))
    assert {key for key, result in words.items() if len(result) == 2} == train
    assert 0 < len(train) < 29


def test_splits_do_not_depend_on_the_order_of_rows(tmp_path: Path) -> None:
    data = prepare(documents(tmp_path / "a.jsonl"), format="texts")
    other = prepare(documents(tmp_path / "b.jsonl", list.reverse), format="texts")
    assert data.fingerprint == other.fingerprint
    assert data.tokenizer == other.tokenizer


def test_tokens_are_part_of_the_fingerprint(tmp_path: Path) -> None:
    def word(made: list[dict[str, Any]]) -> None:
        made[0]["title"] += " cat"

    one, other = (
        prepare(documents(tmp_path / f"{i}.jsonl", change), format="texts")
        for i, change in enumerate((len, word))
    )
    assert one.fingerprint != other.fingerprint


# ---------------------------------------------------------------------------------- refusals


def refuse(change: Callable[[list[dict[str, Any]]], object], tmp_path: Path, **options: Any) -> str:
    with pytest.raises(UserError) as caught:
        prepare(
            documents(tmp_path / "d.jsonl", change),
            out=tmp_path / "out",
            **{"format": "texts"} | options,
        )
    assert not (tmp_path / "out").exists()
    assert caught.value.hint
    return str(caught.value)


def without(name: str) -> Callable[[list[dict[str, Any]]], object]:
    return lambda made: [row.pop(name) for row in made]


def setting(name: str, value: object) -> Callable[[list[dict[str, Any]]], object]:
    return lambda made: [row.update({name: value}) for row in made]


def test_bad_documents_are_refused(tmp_path: Path) -> None:
    def twice(made: list[dict[str, Any]]) -> None:
        made[1]["id"] = "d0"

    assert "holds the labels" in refuse(
        lambda made: (without("labels")(made), setting("other", 1)(made), setting("more", 1)(made)),
        tmp_path,
    )
    assert "no column 'x'" in refuse(len, tmp_path, candidate_column="x")
    assert "no column 'y'" in refuse(len, tmp_path, text_column="y")
    assert "'d0' more than once" in refuse(twice, tmp_path)
    assert "has a label" in refuse(setting("labels", []), tmp_path)
    assert "no documents" in refuse(setting("labels", [{}]), tmp_path)
    assert "no words" in refuse(
        lambda made: (setting("title", "!")(made), setting("labels", ["?"])(made)), tmp_path
    )
    assert "no JSON object" in refuse(list.clear, tmp_path)
    assert "`tokens` must be one of word, word-piece, got 'x'" in refuse(len, tmp_path, tokens="x")
    assert "`vocabulary` must be at least 1, got 0" in refuse(len, tmp_path, vocabulary=0)
    assert "has no texts" in refuse(len, tmp_path, source="movielens")
    assert "nothing to read" in _message(lambda: prepare(format="texts"))


def _message(run: Callable[[], object]) -> str:
    with pytest.raises(UserError) as caught:
        run()
    return str(caught.value)


def test_bad_tables_of_texts_are_refused(tmp_path: Path) -> None:
    path = documents(tmp_path / "d.jsonl")
    tables = {
        "holds the text": pl.DataFrame({"key": ["cat"], "a": ["x"], "b": ["y"]}),
        "no column of texts": pl.DataFrame({"key": ["cat"]}),
        "no key in common": pl.DataFrame({"key": ["nobody"], "text": ["x"]}),
        "more than once": pl.DataFrame({"key": ["cat", "cat"], "text": ["x", "y"]}),
        "not text": pl.DataFrame({"key": ["cat"], "text": [[1]]}),
    }
    for message, table in tables.items():
        options = {"format": "texts", "candidate_texts": table}
        assert message in _message(lambda options=options: prepare(path, **options))  # type: ignore[misc]
