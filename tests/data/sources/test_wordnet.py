"""Synsets and pointers, in the format of wordnet."""

from pathlib import Path

import pytest
import zstandard

from rankfold.data.prepare import prepare
from rankfold.types import Dataset, SplitName

N = 400


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """400 synsets in a ring; each points to the next and back, in one case twice, one to itself."""
    synsets = [f'{i}\tn{i:08}\tword{i}, other\tthe gloss of {i}; "so"' for i in range(N)]
    pointers = [f"{i}\t{(i + 1) % N}\t~\tsem" for i in range(N)]
    pointers += [f"{(i + 1) % N}\t{i}\t@\tsem" for i in range(N)]
    pointers += ["0\t1\t+\tlex", "5\t5\t+\tlex"]
    for name, lines in (("synsets", synsets), ("pointers", pointers)):
        content = "".join(line + "\n" for line in lines).encode()
        (tmp_path / f"{name}.tsv.zst").write_bytes(zstandard.compress(content))
    return tmp_path


def pairs(data: Dataset, name: SplitName) -> set[tuple[str, str]]:
    part = data.split(name)
    queries = data.queries.take(part.query_of_pair().long())
    return set(zip(queries, data.candidates.take(part.candidates.long()), strict=True))


def test_pair_and_inverse_are_in_one_split(folder: Path) -> None:
    data = prepare(folder, source="wordnet")
    for name in ("train", "validation", "test"):
        result = pairs(data, name)  # type: ignore[arg-type]
        assert {(b, a) for a, b in result} == result
        assert all(a != b for a, b in result)
    sizes = [data.split(name).n_pairs for name in ("train", "validation", "test")]  # type: ignore[arg-type]
    assert sum(sizes) == 2 * N
    assert 2 * N * 0.06 < sizes[2] < 2 * N * 0.14
    assert 0 < sizes[1] < sizes[2]


def test_words_are_words_and_gloss(folder: Path) -> None:
    data = prepare(folder, source="wordnet")
    assert data.candidates.texts is not None
    assert data.candidates.texts[3] == 'word3, other the gloss of 3; "so"'
    assert data.candidates.keys[3] == "n00000003"
    assert data.excluded is not None
    assert data.excluded.n_pairs == N
