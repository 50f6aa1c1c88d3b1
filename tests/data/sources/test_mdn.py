"""Pages of the MDN web docs, in the format of mdn-seealso."""

from pathlib import Path

import pytest
import zstandard

from rankfold.data.prepare import prepare
from rankfold.errors import UserError
from rankfold.types import Dataset, SplitName

N = 60


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """60 pages; each of the first 50 links to the next two."""
    pages = [f"{i}\tWeb/Page_{i}\tTitle of {i}\tIt begins here" for i in range(N)]
    links = [f"{i}\t{i + 1} {i + 2}" for i in range(50)]
    (tmp_path / "pages.tsv.zst").write_bytes(zstandard.compress("\n".join(pages).encode() + b"\n"))
    (tmp_path / "seealso.tsv").write_text("\n".join(links) + "\n")
    return tmp_path


def numbers(data: Dataset, name: SplitName) -> list[int]:
    keys = data.queries.take(data.split(name).query_of_pair().unique().long())
    return sorted(int(key.rpartition("_")[2]) for key in keys)


def test_pages_are_split_by_their_number(folder: Path) -> None:
    data = prepare(folder, source="mdn-seealso")
    rest = [i for i in range(50) if i % 10]
    assert numbers(data, "test") == [0, 10, 20, 30, 40]
    assert numbers(data, "validation") == rest[::20]
    assert numbers(data, "train") == [i for i in rest if i not in rest[::20]]


def test_pages_without_links_are_dropped_and_own_keys_excluded(folder: Path) -> None:
    data = prepare(folder, source="mdn-seealso")
    assert (len(data.queries), len(data.candidates)) == (50, 51)
    assert data.excluded is not None
    own = data.queries.take(data.excluded.query_of_pair().long())
    assert own.to_list() == data.candidates.take(data.excluded.candidates.long()).to_list()
    assert data.excluded.n_pairs == 49


def test_words_are_titles(folder: Path) -> None:
    data = prepare(folder, source="mdn-seealso")
    assert data.candidates.texts is not None
    shown = dict(zip(data.candidates.keys, data.candidates.texts, strict=True))
    assert shown["Web/Page_51"] == "Title of 51"


def test_unknown_page_is_refused(folder: Path) -> None:
    (folder / "seealso.tsv").write_text("0\t60\n")
    with pytest.raises(UserError, match=r"seealso\.tsv names '60'"):
        prepare(folder, source="mdn-seealso")
    (folder / "seealso.tsv").write_text("")
    with pytest.raises(UserError):
        prepare(folder, source="mdn-seealso")
