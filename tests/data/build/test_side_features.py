"""Features beside pairs: keys that join, exclusions, and folders."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from feature_rows import numbers, words

from rankfold.data import folder
from rankfold.data.prepare import prepare
from rankfold.errors import UserError
from rankfold.types import Dataset, Features, Interactions

# ---------------------------------------------------------------------------------- prepared data


@pytest.fixture
def ratings() -> pl.DataFrame:
    rows = [(f"u{u}", i, 1 + (u * i) % 3) for u in range(8) for i in range(u + 1)]
    return pl.DataFrame(rows, schema=["user", "item", "rating"], orient="row")


@pytest.fixture
def items() -> pl.DataFrame:
    """Items 0 to 7 have pairs; 5 has no features, 40 and 200 no pairs."""
    keys = [200, 3, 0, 7, 1, 6, 40, 2, 4]
    kinds = [None if key == 3 else f"kind {key % 3}" for key in keys]
    return pl.DataFrame({"weight": [key + 0.5 for key in keys], "item": keys, "kind": kinds})


@pytest.fixture
def users() -> pl.DataFrame:
    return pl.DataFrame({"user": [f"u{u}" for u in (3, 1, 9, 5)], "age": [30, 10, 90, 50]})


def pairs_of(data: Dataset, name: str) -> dict[tuple[str, str], float]:
    part = getattr(data, name)
    if not isinstance(part, Interactions):
        return {}
    queries = data.queries.take(part.query_of_pair().long()).cast(pl.String)
    candidates = data.candidates.take(part.candidates).cast(pl.String)
    grades = [1.0] * part.n_pairs if part.grades is None else part.grades.tolist()
    return dict(zip(zip(queries, candidates, strict=True), grades, strict=True))


def check_sorted(data: Dataset) -> None:
    for part in (data.train, data.validation, data.test):
        if isinstance(part, Interactions):
            key = part.query_of_pair().long() * part.n_candidates + part.candidates
            assert bool((key.diff() > 0).all())
            assert part.n_candidates == len(data.candidates)
            assert part.n_queries == len(data.queries)


def test_keys_of_the_tables_join_and_no_split_changes(
    ratings: pl.DataFrame, items: pl.DataFrame, users: pl.DataFrame
) -> None:
    plain = prepare(ratings)
    data = prepare(ratings, candidate_features=items, query_features=users)
    assert data.candidates.keys.to_list() == [*range(8), 40, 200]
    assert data.queries.keys.to_list() == [*(f"u{u}" for u in range(8)), "u9"]
    check_sorted(data)
    for name in ("train", "validation", "test"):
        assert pairs_of(data, name) == pairs_of(plain, name)
    assert data.candidate_features is not None
    assert data.query_features is not None
    expected = [[None if k == 5 else k + 0.5] for k in (*range(8), 40, 200)]
    assert numbers(data.candidate_features) == expected
    kinds = [None if k in (3, 5) else f"kind {k % 3}" for k in (*range(8), 40, 200)]
    assert words(data.candidate_features) == [[kind] for kind in kinds]
    ages = [[10.0 * u] if u in (1, 3, 5, 9) else [None] for u in (*range(8), 9)]
    assert numbers(data.query_features) == ages
    assert data.summary["features"] == {
        "query": {
            "rows": 4,
            "numbers": 1,
            "categories": 0,
            "left_out": [],
            "doubtful": [],
            "without_pairs": 1,
            "without_features": 5,
            "dropped": [],
        },
        "candidate": {
            "rows": 9,
            "numbers": 1,
            "categories": 1,
            "left_out": [],
            "doubtful": [],
            "without_pairs": 2,
            "without_features": 1,
            "dropped": [],
        },
    }
    assert "features" not in plain.summary


def test_text_keys_among_integers_renumber_every_row(ratings: pl.DataFrame) -> None:
    """As text, 10 comes before 2."""
    wide = ratings.with_columns(item=pl.col("item") + 5)
    table = pl.DataFrame({"item": ["10", "x", "6"], "n": [10, -1, 6]})
    data = prepare(wide, candidate_features=table)
    assert data.candidates.keys.to_list() == ["10", "11", "12", "5", "6", "7", "8", "9", "x"]
    check_sorted(data)
    assert data.candidate_features is not None
    result = dict(zip(data.candidates.keys, numbers(data.candidate_features), strict=True))
    assert (result["10"], result["6"], result["x"], result["9"]) == ([10], [6], [-1], [None])
    for name in ("train", "validation", "test"):
        assert pairs_of(data, name) == pairs_of(prepare(wide), name)


def test_integers_written_as_text_stay_integers(ratings: pl.DataFrame, tmp_path: Path) -> None:
    (tmp_path / "items.csv").write_text("item,n\n3,1\n99,2\n")
    data = prepare(ratings, candidate_features=tmp_path / "items.csv")
    assert data.candidates.keys.to_list() == [*range(8), 99]


def test_filtered_keys_of_a_table_return_without_pairs(
    ratings: pl.DataFrame, items: pl.DataFrame
) -> None:
    plain = prepare(ratings, kcore=4)
    assert plain.candidates.keys.to_list() == [0, 1, 2, 3, 4]
    data = prepare(ratings, kcore=4, candidate_features=items)
    assert data.candidates.keys.to_list() == [0, 1, 2, 3, 4, 6, 7, 40, 200]  # 5 has no features
    assert pairs_of(data, "train") == pairs_of(plain, "train")
    assert data.summary["dropped"] == plain.summary["dropped"]


def test_the_key_column_is_that_of_the_pairs_else_the_first(
    ratings: pl.DataFrame, items: pl.DataFrame
) -> None:
    assert items.columns[0] == "weight"
    data = prepare(ratings, candidate_features=items)
    first = items.select("item", "kind", "weight").rename({"item": "sku"})
    for other in (
        prepare(ratings, candidate_features=first),
        prepare(ratings.rename({"item": "x"}), candidate_column="x", candidate_features=first),
    ):
        assert other.fingerprint == data.fingerprint
    with pytest.raises(UserError, match="no key in common"):
        prepare(ratings, candidate_features=items.rename({"item": "sku"}))


def test_own_keys_of_joined_candidates_are_excluded() -> None:
    links = (["a", "a", "b"], ["b", "c", "c"])
    pages = pl.DataFrame({"page": ["a", "b", "z"], "n": [1, 2, 3]})
    options: Any = {"split": (1, 0, 0), "exclude_self": True}
    data = prepare(links, candidate_features=pages, **options)
    assert data.candidates.keys.to_list() == ["a", "b", "c", "z"]
    assert pairs_of(data, "excluded") == {("a", "a"): 1.0, ("b", "b"): 1.0}


def test_strict_refuses_bad_rows_of_features(ratings: pl.DataFrame) -> None:
    table = pl.DataFrame({"item": [1, None], "n": [1, 2]})
    data = prepare(ratings, candidate_features=table)
    (dropped,) = data.summary["features"]["candidate"]["dropped"]
    assert dropped == {"why": "a missing key", "rows": 1, "first": ["the table of features:2"]}
    assert data.summary["rows"] == len(ratings)
    with pytest.raises(UserError, match="1 row with a missing key"):
        prepare(ratings, candidate_features=table, strict=True)


def test_invalid_features_are_refused_before_reading(tmp_path: Path) -> None:
    tables: tuple[dict[str, Any], ...] = (
        {"query_features": tmp_path / "none.csv"},
        {"candidate_features": tmp_path / "none.csv"},
    )
    for table in tables:
        with pytest.raises(UserError, match=r"there is no file .*none\.csv"):
            prepare(tmp_path / "pairs.csv", **table)
    with pytest.raises(UserError, match="graded rows take no table of query features"):
        prepare(source="retinamnist", query_features=pl.DataFrame({"a": [1], "b": [2]}))


# ---------------------------------------------------------------------------------- on disk


def same(a: Features | None, b: Features | None) -> bool:
    return (
        a is not None
        and b is not None
        and a.columns == b.columns
        and list(a.columns.levels) == list(b.columns.levels)
        and torch.equal(a.categories, b.categories)
        and torch.equal(a.numbers.nan_to_num(-77), b.numbers.nan_to_num(-77))
        and (a.numbers.dtype, a.categories.dtype) == (b.numbers.dtype, b.categories.dtype)
    )


def test_features_round_trip(
    ratings: pl.DataFrame, items: pl.DataFrame, users: pl.DataFrame, tmp_path: Path
) -> None:
    data = prepare(ratings, candidate_features=items, query_features=users)
    folder.save(data, tmp_path / "data")
    again = folder.load(tmp_path / "data")
    assert same(again.candidate_features, data.candidate_features)
    assert same(again.query_features, data.query_features)
    assert (again.summary, again.fingerprint) == (data.summary, data.fingerprint)
    folder.check_content(again)
    prepare(ratings, out=tmp_path / "data")  # without features, there are no such files
    plain = folder.load(tmp_path / "data")
    assert plain.query_features is plain.candidate_features is None
    assert "candidate_columns" not in json.loads((tmp_path / "data/manifest.json").read_text())


def test_the_fingerprint_depends_on_features(ratings: pl.DataFrame, items: pl.DataFrame) -> None:
    tables = [
        None,
        items,
        items.with_columns(weight=pl.col("weight") + 1),
        items.with_columns(kind=pl.col("kind").str.to_uppercase()),
        items.rename({"weight": "mass"}),
        items.drop("kind"),
    ]
    result = [prepare(ratings, candidate_features=table).fingerprint for table in tables]
    assert len(set(result)) == len(tables)
    shuffled = items.sample(fraction=1, shuffle=True, seed=3)
    assert prepare(ratings, candidate_features=shuffled).fingerprint == result[1]


def test_damaged_features_are_refused(
    ratings: pl.DataFrame, items: pl.DataFrame, tmp_path: Path
) -> None:
    data = prepare(ratings, candidate_features=items)
    known = data.candidate_features
    assert known is not None
    bad = known.categories.clone()
    bad[0, 0] = 3
    kept = {"train": data.train, "queries": data.queries, "candidates": data.candidates}
    options: Any = {"kind": "interactions", "validation": None, "test": None, **kept}
    beyond = Features(known.numbers, bad, known.columns)
    with pytest.raises(UserError, match="candidate features are damaged"):
        folder.check_content(Dataset(candidate_features=beyond, **options))
    short = Features(known.numbers[1:], known.categories, known.columns)
    folder.save(Dataset(candidate_features=short, **options), tmp_path / "data")
    with pytest.raises(UserError, match="is damaged"):
        folder.load(tmp_path / "data")
