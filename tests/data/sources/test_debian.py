from pathlib import Path

import polars as pl
import pytest

from rankfold.data.prepare import prepare
from rankfold.data.read.reading import Reading
from rankfold.data.sources import debian
from rankfold.data.sources.debian import read_relations, read_see_also, read_tags


def rows(frame: pl.LazyFrame) -> pl.DataFrame:
    table = frame.collect(engine="streaming")
    assert table.columns == ["query", "candidate"]
    return table


def counts(table: pl.DataFrame) -> tuple[int, int, int]:
    """Queries, candidates, pairs."""
    return table["query"].n_unique(), table["candidate"].n_unique(), len(table)


def of(table: pl.DataFrame, name: str) -> set[str]:
    return set(table.filter(pl.col("query") == name)["candidate"])


def test_counts_are_those_of_the_origin(reading: Reading) -> None:
    assert counts(rows(read_relations([], reading))) == (60243, 44638, 318049)
    assert counts(rows(read_see_also([], reading))) == (17406, 20643, 55686)
    assert counts(rows(read_tags([], reading))) == (25604, 597, 102140)


def test_relations_are_between_names(reading: Reading) -> None:
    related = of(rows(read_relations([], reading)), "0ad")
    assert {"0ad-data", "0ad-data-common", "libc6"} <= related


def test_see_also_leaves_dependencies_out(
    tmp_path: Path, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tables(tmp_path, monkeypatch)
    assert rows(read_see_also([], reading)).rows() == [("b", "a"), ("c", "a"), ("c", "b")]


def test_pair_with_two_relations_is_one_row(
    tmp_path: Path, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tables(tmp_path, monkeypatch)
    expected = [("a", "b"), ("a", "c"), ("b", "a"), ("c", "a"), ("c", "b")]
    assert rows(read_relations([], reading)).rows() == expected


def test_tags_of_a_package(reading: Reading) -> None:
    tags = rows(read_tags([], reading))
    assert of(tags, "0ad-data") == {"role::app-data"}
    assert len(of(tags, "0ad")) == 8
    assert of(tags, "0install-core") == set()


def test_see_also_with_texts_is_split_by_package() -> None:
    data = prepare(source="debian-seealso", format="texts")
    assert data.kind == "texts"
    sizes = [data.split(name).n_pairs for name in ("train", "validation", "test")]  # type: ignore[arg-type]
    assert sizes == [47810, 2273, 5603]
    assert (len(data.queries), len(data.candidates)) == (17406, 20643)
    assert data.excluded is not None
    assert data.excluded.n_pairs == 8099
    assert data.candidates.texts is not None
    texts = zip(data.candidates.keys, data.candidates.texts, strict=True)
    assert all(len(text) > len(key) and text.startswith(key) for key, text in texts)


def test_tags_with_texts_are_known_by_their_parts() -> None:
    data = prepare(source="debian-tags", format="texts")
    assert data.candidates.texts is not None
    shown = dict(zip(data.candidates.keys, data.candidates.texts, strict=True))
    assert shown["role::app-data"] == "role app data"
    assert (
        data.split("test").counts().bool().logical_and(data.split("train").counts() > 0).sum() == 0
    )


def test_without_texts_they_are_interactions() -> None:
    data = prepare(source="debian-tags")
    assert (data.kind, data.query_texts, data.tokenizer) == ("interactions", None, None)


def write_tables(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three packages in place of the bundled ones, in their format."""
    packages = "".join(
        f'{i}\t{name}\t{name}\tadmin\toptional\tfoo "\t\n' for i, name in enumerate("abc")
    )
    relations = "0\t1\td\n0\t1\tp\n0\t2\td\n1\t0\tr\n1\t0\ts\n2\t0\te\n2\t1\ts\n"
    for name, text in (("packages", packages), ("relations", relations)):
        (folder / f"{name}.tsv.zst").write_text(text)  # polars looks at the content, not the name
    monkeypatch.setattr(debian, "FOLDER", folder)
