"""Tables of features: types of columns, alignment with keys, and folders."""

import json
import random
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankfold.data import folder
from rankfold.data.build.features import align, doubt
from rankfold.data.prepare import prepare
from rankfold.data.read.keyed_tables import check_common, open_table
from rankfold.errors import UserError
from rankfold.types import Columns, Dataset, Features, Interactions, Vocabulary

NAN = float("nan")
ITEMS = {
    "item": ["tea", "ink", "pen"],
    "price": [2.5, None, 7.0],
    "kind": ["food", "tool", None],
    "new": [True, False, None],
    "stock": [4, 0, 12],
}


def vocabulary(*keys: Any) -> Vocabulary:
    series = pl.Series(sorted(keys))
    return Vocabulary(len(series), lambda: series)


def read(
    table: Any, key_column: str | None, keys: Vocabulary, like: Columns | None = None
) -> Features:
    """The features of ``keys`` in a table."""
    opened = open_table(table, key_column, like=like)
    check_common(opened, keys)
    return align(opened, keys, like)


def numbers(features: Features) -> list[list[float | None]]:
    return [[None if v != v else v for v in row] for row in features.numbers.tolist()]


def words(features: Features) -> list[list[str | None]]:
    """The categories by name."""
    levels = list(features.columns.levels.values())
    rows = features.categories.tolist()
    return [[None if i < 0 else levels[c][i] for c, i in enumerate(row)] for row in rows]


# ---------------------------------------------------------------------------------- one table


WRITERS: dict[str, Callable[[pl.DataFrame, Path], object]] = {
    "items.csv": pl.DataFrame.write_csv,
    "items.tsv": lambda frame, path: frame.write_csv(path, separator="\t"),
    "items.jsonl": pl.DataFrame.write_ndjson,
    "items.parquet": pl.DataFrame.write_parquet,
    "items.arrow": pl.DataFrame.write_ipc,
}


def check_items(features: Features) -> None:
    """The features of the keys ink, jam, pen, tea."""
    assert features.columns == Columns(("new", "price", "stock"), {"kind": ("food", "tool")})
    assert numbers(features) == [[0, None, 0], [None] * 3, [None, 7, 12], [1, 2.5, 4]]
    assert words(features) == [["tool"], [None], [None], ["food"]]
    assert features.numbers.dtype == torch.float32
    assert features.categories.dtype == torch.int32


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_rows(name: str, tmp_path: Path) -> None:
    WRITERS[name](pl.DataFrame(ITEMS), tmp_path / name)
    check_items(read(tmp_path / name, "item", vocabulary("tea", "ink", "pen", "jam")))


def test_frames_give_the_same() -> None:
    frame = pl.DataFrame(ITEMS)
    keys = vocabulary("tea", "ink", "pen", "jam")
    for table in (frame, frame.lazy(), frame.to_pandas(), frame.to_arrow()):
        check_items(read(table, "item", keys))
    check_items(read(frame.with_columns(pl.col("kind").cast(pl.Categorical)), "item", keys))
    check_items(read(frame.select(sorted(frame.columns, reverse=True)), "item", keys))


def test_both_readers_give_the_same_table(tmp_path: Path) -> None:
    """A stray quote forces the exact reader."""
    pl.DataFrame(ITEMS).write_csv(tmp_path / "items.csv")
    with (tmp_path / "items.csv").open("a") as file:
        file.write('wax,"1"x,food,true,3\n,1,food,true,3\n')
    check_items(read(tmp_path / "items.csv", "item", vocabulary("tea", "ink", "pen", "jam")))
    bad = open_table(tmp_path / "items.csv").bad
    assert bad.counts == {"a stray quote": 1, "a missing key": 1}
    assert bad.places["a missing key"] == ["items.csv:6"]


def test_words_for_a_missing_number_leave_numbers(tmp_path: Path) -> None:
    table = pl.DataFrame(
        {
            "key": ["a", "b", "c", "d"],
            "price": ["1.5", " NA", "", "nan"],
            "far": ["1e3", "inf", "-1e300", "\\N"],
            "kind": ["none", "NA", "", "7"],
        }
    )
    table.write_csv(tmp_path / "t.csv")
    result = read(tmp_path / "t.csv", "key", vocabulary("a", "b", "c", "d"))
    assert result.columns.numbers == ("far", "kind", "price")
    assert numbers(result) == [[1000, None, 1.5], [None] * 3, [None] * 3, [None, 7, None]]
    mixed = table.with_columns(kind=pl.Series(["none", "x", "", "7"]))
    mixed.write_csv(tmp_path / "t.csv")
    assert words(read(tmp_path / "t.csv", "key", vocabulary("a", "b", "c", "d"))) == [
        ["none"],
        ["x"],
        [None],
        ["7"],
    ]


@pytest.mark.parametrize("kind", [pl.String(), pl.Categorical(), pl.Enum(["007", "1", "2"])])
def test_text_types_keep_digits_as_words(kind: pl.DataType, tmp_path: Path) -> None:
    codes = pl.Series(["2", "007", None, "1"], dtype=kind)
    frame = pl.DataFrame({"key": ["a", "b", "c", "d"], "code": codes, "n": [1, 2, 3, 4]})
    sources: list[Any] = [frame, frame.lazy(), frame.to_arrow(), frame.to_pandas()]
    for name in ("t.parquet", "t.arrow"):
        WRITERS[f"items{Path(name).suffix}"](frame, tmp_path / name)
        sources.append(tmp_path / name)
    for source in sources:
        result = read(source, "key", vocabulary("a", "b", "c", "d"))
        assert result.columns == Columns(("n",), {"code": ("007", "1", "2")})
        assert words(result) == [["2"], ["007"], [None], ["1"]]
    for name in ("t.csv", "t.tsv", "t.jsonl"):  # untyped files
        WRITERS[f"items{Path(name).suffix}"](frame, tmp_path / name)
        result = read(tmp_path / name, "key", vocabulary("a", "b", "c", "d"))
        assert result.columns == Columns(("code", "n"), {})


def test_empty_text_column_is_dropped() -> None:
    frame = pl.DataFrame({"key": ["a"], "none": pl.Series([None], dtype=pl.String), "n": [1]})
    assert read(frame, "key", vocabulary("a")).columns == Columns(("n",), {})


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (["1.5"] * 19 + ["n. d."], "'n. d.' is not a number"),
        (["1"] * 10 + ["x", "", "NA"], "'x' is not a number"),
        (["1"] * 9 + ["x"], None),  # a tenth is a level
        (["1", "2.5", "inf"], "its numbers are text"),
        (["1", "2", "nan"], None),  # codes
        (["22,5", "3", "-,5"], "'22,5' is not a number: write decimals with a point"),
        (["1"] * 10 + ["x", "2,5"], "'2,5' is not a number: write decimals with a point"),
        (["2,5"] * 9 + ["x"], None),
        (["a,5", "1,2,3", "4,5"], None),  # words, and lists
        (["x", None], None),
        ([None], None),
        ([1.5, 2.5], None),
    ],
)
def test_nearly_numbers_are_doubtful(values: list[Any], why: str | None) -> None:
    assert doubt(pl.Series(values)) == why


def test_columns_of_other_types_and_without_values_are_left_out() -> None:
    table = pl.DataFrame(
        {"key": [1, 2], "when": [date(2026, 1, 1)] * 2, "tags": [["a"], []], "no": [None, None]}
    )
    with pytest.raises(UserError, match="no column of features") as caught:
        read(table, "key", vocabulary(1, 2))
    assert "when, tags, no" in caught.value.hint
    blank = table.with_columns(price=pl.Series([1, 2]), blank=pl.Series(["", ""]))
    result = read(blank, "key", vocabulary(1, 2))
    assert result.columns == Columns(("price",), {})
    assert result.categories.shape == (2, 0)


KEYS = st.one_of(
    st.lists(st.integers(-(2**62), 2**62), unique=True, min_size=1, max_size=20),
    st.lists(st.text("ab7é-", min_size=1, max_size=4), unique=True, min_size=1, max_size=20),
)


@given(KEYS, st.randoms(use_true_random=False), st.sampled_from([str, lambda key: key]))
def test_rows_follow_the_keys_whatever_their_order(
    keys: list[Any], rng: random.Random, written: Callable[[Any], Any]
) -> None:
    values = {str(key): float(n) for n, key in enumerate(keys)}
    shuffled = rng.sample(keys, len(keys))
    table = pl.DataFrame(
        {
            "size": [values[str(key)] for key in shuffled],
            "word": [f"w{key}" for key in shuffled],
            "key": [written(key) for key in shuffled],
        }
    )
    mine = vocabulary(*keys[: 1 + len(keys) // 2])
    result = read(table, "key", mine)
    names = [str(key) for key in mine.keys]
    assert numbers(result) == [[values[name]] for name in names]
    assert words(result) == [[f"w{name}"] for name in names]
    assert list(result.columns.levels["word"]) == sorted(f"w{name}" for name in names)


@pytest.mark.parametrize(
    ("columns", "key", "message", "hint"),
    [
        ({"k": ["a", "b", "a"], "x": [1, 2, 3]}, "k", "has the key 'a' more than once", "one row"),
        ({"k": [7, 8], "x": ["1", "2"]}, "item", "has no column 'item'", "it has k, x"),
        ({"k": ["a", "b"]}, "k", "no column of features", "a column of keys only"),
        ({"k": ["x", "y"], "x": [1, 2]}, None, "no key in common", "'x', 'y', ..., those of"),
        ({"k": [None, ""], "x": [1, 2]}, None, "no usable rows", "2 rows with a missing key"),
        ({"k": [["a"]], "x": [1]}, "k", "holds List", "numbers or text"),
    ],
)
def test_bad_tables_are_refused(
    columns: dict[str, Any], key: str | None, message: str, hint: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        read(pl.DataFrame(columns), key, vocabulary("a", "b", "c"))
    assert hint in caught.value.hint


def test_inputs_that_are_not_one_table_are_refused(tmp_path: Path) -> None:
    for name in ("1.csv", "2.csv"):
        (tmp_path / name).write_text("1,2\n3,4\n")
    for table, message in (
        ([[1, 2]], "cannot read features from list"),
        (pl.scan_parquet(tmp_path / "none.parquet"), "cannot read the table of features"),
        (tmp_path, "is a folder"),
        (tmp_path / "*.csv", "matches 2 files"),
        (tmp_path / "none.csv", "there is no file"),
        (tmp_path / "1.csv", "has no column names: 1,2"),
    ):
        with pytest.raises(UserError, match=message) as caught:
            read(table, None, vocabulary(1, 3))
        assert caught.value.hint


# ---------------------------------------------------------------------------------- like others


LIKE = Columns(("price", "stock"), {"kind": ("food", "tool")})


def test_like_selects_columns_and_known_levels() -> None:
    table = pl.DataFrame(
        {
            "kind": ["toy", "tool", "food"],
            "more": [1, 2, 3],
            "stock": ["3", "", "1"],
            "price": [None, None, None],
            "id": ["c", "a", "b"],
        }
    )
    keys = vocabulary("a", "b", "c")
    result = read(table, "id", keys, LIKE)
    assert result.columns == LIKE
    assert numbers(result) == [[None, None], [None, 1], [None, 3]]
    assert result.categories.tolist() == [[1], [0], [-1]]
    assert torch.equal(read(table.drop("more"), None, keys, LIKE).categories, result.categories)


@given(st.lists(st.tuples(st.text("xy ", max_size=2), st.integers(-5, 5)), min_size=1, max_size=9))
def test_reading_like_its_own_columns_changes_nothing(rows: list[tuple[str, int]]) -> None:
    """Even if a part of a categorical column looks like numbers."""
    table = pl.DataFrame(
        {
            "key": range(len(rows) + 1),
            "word": [*(word for word, _ in rows), "a word"],
            "n": [*(n for _, n in rows), 0],
            "mixed": [*(str(n) for _, n in rows), "a word"],
        }
    )
    keys = Vocabulary.numbered(len(rows) + 1)
    first = read(table, "key", keys)
    part = Vocabulary.numbered(len(rows))
    again = read(table.head(len(rows)), "key", part, first.columns)
    assert torch.equal(again.categories, first.categories[: len(rows)])
    assert torch.equal(again.numbers, first.numbers[: len(rows)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stock": ["1", "many"]}, "'stock' of .* holds 'many', but .* fitted with numbers"),
        ({"stock": [date(2026, 1, 1)] * 2}, "'stock' of .* holds Date"),
        ({"kind": [1.5, 2.5]}, "'kind' of .* holds Float64, but .* fitted with text"),
        ({"kind": None}, "has no column 'kind', which the model was fitted with"),
    ],
)
def test_like_refuses_missing_and_mistyped_columns(change: dict[str, Any], message: str) -> None:
    columns = {"id": ["a", "b"], "price": [1, 2], "stock": [1, 2], "kind": ["food", "toy"]}
    table = pl.DataFrame({k: v for k, v in {**columns, **change}.items() if v is not None})
    with pytest.raises(UserError, match=message) as caught:
        read(table, "id", vocabulary("a", "b"), LIKE)
    assert caught.value.hint


def test_schema_of_all_columns_leaves_no_key_column() -> None:
    table = pl.DataFrame({"price": [1], "stock": [2], "kind": ["food"]})
    with pytest.raises(UserError, match="has no key column"):
        read(table, None, vocabulary("a"), LIKE)


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
