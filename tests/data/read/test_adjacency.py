"""Adjacency files: one query with its candidates on each line."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankfold.data.prepare import prepare
from rankfold.data.read.adjacency import looks_like_adjacency, read_adjacency
from rankfold.data.read.reading import Reading
from rankfold.errors import UserError

Pack = Callable[[bytes, str], bytes]
Written = Callable[[str, str | bytes], AbstractContextManager[tuple[Path, Reading]]]

WORDS = st.text('ab01é",#', min_size=1, max_size=3)
GAPS = st.sampled_from([" ", "\t", "  ", " \t "])


@given(
    lines=st.lists(st.lists(WORDS, max_size=4), max_size=6),
    gap=GAPS,
    end=st.sampled_from(["\n", "\r\n", " \n", "\n\n"]),
    final=st.booleans(),
)
def test_rows_equal_a_plain_loop(
    lines: list[list[str]], gap: str, end: str, *, final: bool, written: Written
) -> None:
    text = end.join(gap.join(words) for words in lines) + (end if final else "")
    with written("a.txt", text) as (path, _):
        rows = read_adjacency(path).collect(engine="streaming").rows()
    assert rows == [(words[0], word) for words in lines for word in words[1:]]


@pytest.mark.parametrize("packed", ["", ".gz", ".zst"])
@pytest.mark.parametrize("begin", ["", "\ufeff", "\n\n"])
def test_text_file_of_words_is_read_as_adjacency(
    packed: str, begin: str, tmp_path: Path, pack: Pack
) -> None:
    path = tmp_path / f"train.txt{packed}"
    path.write_bytes(pack(f"{begin}0 7 8\n1\n2 8 9 10\n3\n".encode(), packed))
    data = prepare(path, split=(1, 0, 0))
    assert data.queries.keys.to_list() == [0, 2]
    assert data.candidates.keys.to_list() == [7, 8, 9, 10]
    assert data.split("train").candidates.tolist() == [0, 1, 1, 2, 3]


def test_format_may_be_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("u a,b c\n")
    data = prepare(tmp_path / "a.csv", format="adjacency", split=(1, 0, 0))
    assert data.candidates.keys.to_list() == ["a,b", "c"]
    (tmp_path / "b.txt").write_text("x y\n1 2\n3 4\n")
    data = prepare(tmp_path / "b.txt", format="table", split=(1, 0, 0))
    assert data.queries.keys.to_list() == [1, 3]


def test_naming_columns_means_a_table(tmp_path: Path) -> None:
    path = tmp_path / "uir.txt"
    path.write_text("u i r\nann x 3\nbob y 4\n")
    named = {"query_column": "u", "candidate_column": "i", "grade_column": "r"}
    whole = prepare(path, **named, split=(1, 0, 0))
    given = prepare(train=path, **named, validation_share=0)
    for data in (whole, given):
        assert data.queries.keys.to_list() == ["ann", "bob"]
        assert data.split("train").grades.tolist() == [3, 4]  # type: ignore[union-attr]
    path.write_text("ann x 3\nbob y 4\n")
    data = prepare(
        path, header=False, candidate_column="column_2", query_column="column_1", split=(1, 0, 0)
    )
    assert data.candidates.keys.to_list() == [3, 4]
    with pytest.raises(
        UserError, match=r"which columns of uir\.txt are the query and the candidate"
    ):
        prepare(path, header=False)
    path.write_text("ann x y\nbob y\n")
    data = prepare(path, grade_column="none", split=(1, 0, 0))  # names none
    assert data.candidates.keys.to_list() == ["x", "y"]
    with pytest.raises(UserError, match="adjacency files take no --candidate-column"):
        prepare(path, format="adjacency", candidate_column="x")


def test_given_splits_may_be_adjacency(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("0 1 2\n1 2\n")
    (tmp_path / "test.txt").write_text("0 3\n1 1\n")
    data = prepare(train=tmp_path / "train.txt", test=tmp_path / "test.txt")
    assert (data.summary["train"], data.summary["test"]) == (3, 2)


@pytest.mark.parametrize(
    ("lines", "is_adjacency"),
    [
        (["0 1 2"], True),
        (["0", "", "1 2"], True),
        (["alice x y"], True),
        (["0"], False),
        ([], False),
        (["", " "], False),
        (["user,item"], False),
        (["a b\tc"], False),
        (["a;b c"], False),
        (["0 1", "1|2 3"], False),
        (["user item rating", "1 2 5"], False),
    ],
)  # fmt: skip
def test_adjacency_is_distinguished_from_tables(lines: list[str], *, is_adjacency: bool) -> None:
    assert looks_like_adjacency(lines) is is_adjacency


@pytest.mark.parametrize("packed", [".gz", ".zst"])
def test_cut_off_file_is_refused(packed: str, tmp_path: Path, pack: Pack) -> None:
    text = "".join(f"{i} {i * i} {i % 7}\n" for i in range(50_000))
    path = tmp_path / f"a.txt{packed}"
    path.write_bytes(pack(text.encode(), packed)[:-5])
    with pytest.raises(UserError, match=rf"a\.txt{packed}"):
        prepare(path)


def test_bytes_that_are_not_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"0 caf\xe9\n")
    with pytest.raises(UserError, match=r"cannot read a\.txt: invalid utf8"):
        prepare(tmp_path / "a.txt")


def test_file_without_a_pair_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\n2\n\n")
    with pytest.raises(UserError, match="the input has no rows"):
        prepare(tmp_path / "a.txt", format="adjacency")
