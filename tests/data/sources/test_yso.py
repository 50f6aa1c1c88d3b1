"""Library records with subjects, in the format of yso-finna-en."""

from pathlib import Path

import pytest
import zstandard

from rankfold.data.prepare import prepare
from rankfold.errors import UserError

LABELS = [(f"http://www.yso.fi/onto/yso/p{i}", f"subject {i}", "more", "columns") for i in range(6)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """100 records; record i has the subjects i % 5 and, if i is odd, 5; one has none."""
    documents = [f'Title "{i}" of\t{i % 5}{" 5" if i % 2 else ""}' for i in range(100)]
    documents[7] = "Title without subjects\t"
    labels = ["\t".join((str(i), *label)) for i, label in enumerate(LABELS)]
    put(tmp_path / "docs.tsv.zst", documents)
    put(tmp_path / "labels.tsv.zst", labels)
    return tmp_path


def put(path: Path, lines: list[str]) -> None:
    path.write_bytes(zstandard.compress("".join(line + "\n" for line in lines).encode()))


def test_lines_are_split_in_their_order(folder: Path) -> None:
    data = prepare(folder, source="yso-finna-en")
    assert data.kind == "texts"
    assert (len(data.queries), len(data.candidates)) == (100, 6)
    queries = {
        name: data.split(name).query_of_pair().unique().tolist()
        for name in ("train", "validation", "test")
    }
    assert queries["test"] == list(range(90, 100))
    assert queries["validation"] == list(range(85, 90))
    assert queries["train"] == [i for i in range(85) if i != 7]
    assert data.split("train").part(9, 10).candidates.tolist() == [4, 5]


def test_words_are_titles_and_names(folder: Path) -> None:
    data = prepare(folder / "labels.tsv.zst", folder / "docs.tsv.zst", source="yso-finna-en")
    assert data.candidates.texts is not None
    assert data.candidates.texts.to_list() == [f"subject {i}" for i in range(6)]
    assert data.query_texts is not None
    assert data.query_texts.counts()[:7].tolist() == [3] * 7


def test_split_option_replaces_the_fixed_splits(folder: Path) -> None:
    data = prepare(folder, source="yso-finna-en", split="queries:0.5,0.25,0.25")
    assert int((data.split("test").counts() > 0).sum()) == 25


@pytest.mark.parametrize("labels", ["6", "-1", "x"])
def test_unknown_subject_is_refused(labels: str, folder: Path) -> None:
    put(folder / "docs.tsv.zst", [f"a title\t{labels}"])
    with pytest.raises(UserError, match=f"docs.tsv.zst names '{labels}'"):
        prepare(folder, source="yso-finna-en")


def test_missing_and_wrong_files_are_refused(folder: Path) -> None:
    put(folder / "labels.tsv.zst", ["1\tx\ty"])
    with pytest.raises(UserError, match="does not number its rows"):
        prepare(folder, source="yso-finna-en")
    (folder / "labels.tsv.zst").unlink()
    with pytest.raises(UserError, match=r"there is no labels\.tsv"):
        prepare(folder, source="yso-finna-en")
