"""Queries to rank for are read from tables and lines, row by row."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from rankfold.data.read import queries
from rankfold.data.read.queries import QueryColumns, QueryRows, read_queries
from rankfold.data.read.reading import Reading
from rankfold.errors import UserError


@pytest.fixture
def reading(tmp_path: Path) -> Reading:
    (tmp_path / "scratch").mkdir()
    return Reading(tmp_path / "scratch")


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows(result: QueryRows, step: int = 100) -> list[tuple[Any, str | None]]:
    return [pair for keys, texts in result.blocks(step) for pair in zip(keys, texts, strict=True)]


@pytest.mark.parametrize(
    ("name", "content", "columns", "expected"),
    [
        ("a.csv", "text\nred tea\n\n", QueryColumns(), [(0, "red tea")]),
        ("a.csv", "id,title\n7,red\n9,\n", QueryColumns(), [(7, "red"), (9, None)]),
        ("a.csv", "id,title\n07,red\n9,tea\n", QueryColumns(), [("07", "red"), ("9", "tea")]),
        ("a.csv", "id,title\n7,red\n", QueryColumns(key="none"), [(0, "red")]),
        ("a.csv", "id,words,body\n7,red,tea\n", QueryColumns(text="words"), [(7, "red")]),
        ("a.tsv", "what\tgrün\nx\tä é\n", QueryColumns("what", "grün"), [("x", "ä é")]),
        (
            "a.jsonl",
            '{"uid": "u", "text": "麺"}\n{"uid": "v"}\n',
            QueryColumns(),
            [("u", "麺"), ("v", None)],
        ),
        (
            "a.txt",
            "red tea\n\nmaps\ttag 1\n",
            QueryColumns(),
            [(0, "red tea"), (1, ""), (2, "maps")],
        ),
        ("a.txt", "text\tlabels\nred\tx\n", QueryColumns(), [(0, "red")]),
        ("a.txt", "text\nred\n", QueryColumns(text="text"), [(0, "red")]),
        ("a", "café tea\n".encode(), QueryColumns(), [(0, "café tea")]),
    ],
)
def test_rows_of_a_file(
    tmp_path: Path,
    reading: Reading,
    name: str,
    content: str | bytes,
    columns: QueryColumns,
    expected: list[tuple[Any, str]],
) -> None:
    assert rows(read_queries([write(tmp_path, name, content)], columns, reading)) == expected


def test_empty_texts_are_none_or_empty(tmp_path: Path, reading: Reading) -> None:
    frame = pl.DataFrame({"text": ["", None, "x"]})
    frame.write_parquet(tmp_path / "a.parquet")
    result = rows(read_queries([tmp_path / "a.parquet"], QueryColumns(), reading))
    assert [(key, text or "") for key, text in result] == [(0, ""), (1, ""), (2, "x")]


def test_keys_alone(tmp_path: Path, reading: Reading) -> None:
    result = read_queries([write(tmp_path, "a.csv", "query\na\nb\n")], QueryColumns(), reading)
    assert result.texts is None
    assert result.keys.to_list() == ["a", "b"]
    result = read_queries([write(tmp_path, "b.csv", "who\na\n")], QueryColumns(key="who"), reading)
    assert result.texts is None


def test_files_are_read_in_order_in_blocks(
    tmp_path: Path, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "BLOCK_ROWS", 7)
    paths = []
    for part in range(3):
        texts = [f"{part} {i}" for i in range(10)]
        pl.DataFrame({"text": texts}).write_parquet(tmp_path / f"{part}.parquet")
        paths.append(tmp_path / f"{part}.parquet")
    result = read_queries(paths, QueryColumns(), reading)
    assert rows(result, 3) == [(i, f"{i // 10} {i % 10}") for i in range(30)]
    assert max(len(keys) for keys, _ in result.blocks(3)) == 3


def test_rows_without_a_key_are_noted_and_left_out(tmp_path: Path, reading: Reading) -> None:
    path = write(tmp_path, "a.csv", "key,text\na,x\n,y\nb,z\n")
    assert rows(read_queries([path], QueryColumns(), reading)) == [("a", "x"), ("b", "z")]
    assert reading.bad.describe() == ["1 row with a missing query (a.csv:3)"]


BAD = [
    ("txt", b"red\nb\xe9d\n\ngood\tb\xe9d\nb\xe9d\n", [0, 2, 3, 5, 7, 8], [2, 5]),
    ("csv", b'text\nred\n\nb\xe9d\n"\nx"\nb\xe9d\n', [0, 2, 4, 6], [4, 7]),
    ("jsonl", b'{"text": "red"}\n\n{nonsense\n{"text": "x"}\n', [0, 2, 3, 5], [3]),
]


@pytest.mark.parametrize(("suffix", "content", "numbers", "lines"), BAD)
def test_dropped_rows_are_counted_and_recorded(
    tmp_path: Path,
    reading: Reading,
    suffix: str,
    content: bytes,
    numbers: list[int],
    lines: list[int],
) -> None:
    """The others keep their numbers among all rows of all files."""
    paths = [write(tmp_path, f"{name}.{suffix}", content) for name in "ab"]
    assert read_queries(paths, QueryColumns(), reading).keys.to_list() == numbers
    (places,) = reading.bad.places.values()
    assert places == [f"{name}.{suffix}:{line}" for name in "ab" for line in lines][:3]
    assert sum(reading.bad.counts.values()) == 2 * len(lines)


@pytest.mark.parametrize(
    ("files", "columns", "message", "hint"),
    [
        (
            {"a.csv": "x,y\n1,2\n"},
            QueryColumns(),
            "cannot tell which column of a.csv",
            "--text-column",
        ),
        ({"a.csv": "text\nx\n"}, QueryColumns(text="body"), "no column 'body'", "it has text"),
        ({"a.csv": "text\nx\n"}, QueryColumns(key="id"), "no column 'id'", "--query-column"),
        (
            {"a.csv": "id,text\n1,x\n1,y\n"},
            QueryColumns(),
            "the input has the key 1 more than once",
            "none",
        ),
        (
            {"a.csv": "id,text\n1,x\n", "b.csv": "id\n2\n"},
            QueryColumns(),
            "a.csv has a column of texts",
            "",
        ),
        (
            {"a.csv": "id,text\n1,x\n", "b.csv": "text\ny\n"},
            QueryColumns(),
            "a.csv has a column of keys",
            "",
        ),
        ({"a.jsonl": '{"text": ["x"]}\n'}, QueryColumns(), "holds List", "--text-column"),
    ],
)
def test_unreadable_inputs_are_refused(
    tmp_path: Path,
    reading: Reading,
    files: dict[str, str],
    columns: QueryColumns,
    message: str,
    hint: str,
) -> None:
    paths = [write(tmp_path, name, content) for name, content in files.items()]
    with pytest.raises(UserError, match=message) as caught:
        read_queries(paths, columns, reading)
    assert hint in caught.value.hint


def test_folder_is_not_a_file(tmp_path: Path, reading: Reading) -> None:
    with pytest.raises(UserError, match="is a folder"):
        read_queries([tmp_path], QueryColumns(), reading)
