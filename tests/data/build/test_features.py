"""Tables of features: types of columns and alignment with keys."""

import random
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from feature_rows import numbers, words
from hypothesis import given
from hypothesis import strategies as st

from rankfold.data.build.features import align, doubt
from rankfold.data.read.keyed_tables import open_table
from rankfold.data.read.results import check_common
from rankfold.errors import UserError
from rankfold.types import Columns, Features, Vocabulary

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
        (["1"] * 10 + ["x", "", "NA"], "'x' is not a number: --missing x reads it as missing"),
        (["1"] * 9 + ["x"], None),  # a tenth is a level
        (["1", "2.5", "inf"], "its numbers are text"),
        (["1", "2", "nan"], None),  # codes
        (
            ["22,5", "3", "-,5"],
            "'22,5' is not a number: write decimals with a point, or use --decimal ,",
        ),
        (
            ["1"] * 10 + ["x", "2,5"],
            "'2,5' is not a number: write decimals with a point, or use --decimal ,",
        ),
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
