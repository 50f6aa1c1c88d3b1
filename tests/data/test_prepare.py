"""From files to splits, compared with plain Python."""

import random
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prepared_splits import Row, splits_of, table

from rankfold.data.prepare import prepare
from rankfold.errors import UserError

# ---------------------------------------------------------------------------------- splits


def test_each_pair_is_in_one_split_of_the_right_size(ratings: Path) -> None:
    data = prepare(ratings)
    splits = splits_of(data)
    counts = {name: Counter(query for query, _ in part) for name, part in splits.items()}
    for user in range(12):
        n = user + 2
        sizes = [counts[name][f"u{user:02}"] for name in ("train", "validation", "test")]
        assert sizes == [n - (n >= 3) - (n >= 5), int(n >= 5), int(n >= 3)]
    everything = {(u, i): g for part in splits.values() for (u, i), g in part.items()}
    assert everything == {(f"u{u:02}", i): 1 + (u + i) % 5 for u in range(12) for i in range(u + 2)}
    assert sum(map(len, splits.values())) == len(everything)


def test_summary_counts_pairs_grades_and_dropped_rows(ratings: Path) -> None:
    with ratings.open("a") as file:
        file.write("u00,0,1,5\n,1,1,5\nu00,1,x,5\nu00,99,0,5\nu00,98,-2,5\n")
    data = prepare(ratings)
    summary = dict(data.summary)
    splits = splits_of(data)
    assert [summary[name] for name in splits] == [len(part) for part in splits.values()]
    assert summary["queries"] == len(data.queries) == 12
    assert summary["candidates"] == len(data.candidates) == 13
    assert summary["pairs"] == sum(range(2, 14)) == 90
    assert summary["density"] == pytest.approx(90 / (12 * 13))
    assert summary["pairs_per_query"] == {"median": 7, "max": 13}
    assert summary["pairs_per_candidate"] == {"median": 7, "max": 12}
    grades = Counter(1 + (u + i) % 5 for u in range(12) for i in range(u + 2))
    assert summary["grades"]["pairs"] == {str(g): grades[g] for g in sorted(grades)}
    assert summary["grades"]["mean"] == pytest.approx(sum(g * n for g, n in grades.items()) / 90)
    assert summary["rows"] == 95
    assert summary["dropped"] == [
        {"why": "a missing query", "rows": 1, "first": ["ratings.csv:93"]},
        {"why": "a grade that is not a number", "rows": 1, "first": ["ratings.csv:94"]},
        {"why": "repeated pair", "rows": 1},
        {"why": "grade of 0 or less", "rows": 2},
    ]


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "7", "", "é"]),
        st.integers(0, 8),
        st.sampled_from(["0", "1", "2.5", "x", "", "-1"]),
    ),
    min_size=1,
    max_size=30,
)


@given(rows=ROWS, kcore=st.integers(0, 3), low=st.sampled_from([None, 1.0, 2.0]))
def test_every_row_is_kept_or_counted_as_dropped(
    rows: list[Row], kcore: int, low: float | None
) -> None:
    grades: dict[tuple[str, int], float] = {}
    for user, item, text in rows:
        if user and text not in ("", "x"):
            grades[user, item] = max(float(text), grades.get((user, item), -9.0))
    pairs = {pair: g for pair, g in grades.items() if g > 0 and g >= (low or -9)}
    while True:
        counts = [Counter(pair[side] for pair in pairs) for side in (0, 1)]
        left = {
            p: g
            for p, g in pairs.items()
            if min(c[k] for c, k in zip(counts, p, strict=True)) >= kcore
        }
        if len(left) == len(pairs):
            break
        pairs = left
    with TemporaryDirectory() as folder:
        path = table(Path(folder) / "t.csv", rows)
        if not pairs:
            with pytest.raises(UserError, match=r"removed all|no usable rows"):
                prepare(path, kcore=kcore, min_grade=low)
            return
        data = prepare(path, kcore=kcore, min_grade=low)
    kept = {pair: grade for part in splits_of(data).values() for pair, grade in part.items()}
    texts = {user for user, _ in grades} != {"7"}  # even if a filter removed the others
    assert kept == {(u if texts else int(u), i): g for (u, i), g in pairs.items()}
    summary = data.summary
    assert summary["rows"] == len(rows)
    assert summary["rows"] == summary["pairs"] + sum(d["rows"] for d in summary["dropped"])


# ---------------------------------------------------------------------------------- order and seed


UNIQUE = st.sets(st.tuples(st.integers(0, 4), st.integers(0, 12)), min_size=4, max_size=40)


@given(
    pairs=UNIQUE,
    shuffle=st.randoms(use_true_random=False),
    parts=st.integers(1, 4),
    split=st.sampled_from(["0.6,0.2,0.2", "last", "time:20"]),
)
def test_order_and_number_of_files_do_not_matter(
    pairs: set[tuple[int, int]], shuffle: random.Random, parts: int, split: str
) -> None:
    rows = [(f"u{u}", i, 1 + i % 3, 7 * i % 40) for u, i in sorted(pairs)]
    rows += [("u0", 50, 1, 0), ("u0", 51, 1, 39)]  # before and after the cut
    rows += [(u, i, grade / 2, time) for u, i, grade, time in rows[::3]]
    with TemporaryDirectory() as folder:
        one = table(Path(folder) / "one.csv", rows)
        shuffle.shuffle(rows)
        many = [
            table(Path(folder) / f"{p}.csv", rows[p::parts]) for p in range(parts) if rows[p::parts]
        ]
        many.reverse()
        expected = prepare(one, split=split, seed=3)
        data = prepare(*many, split=split, seed=3)
    assert splits_of(data) == splits_of(expected)
    assert data.fingerprint == expected.fingerprint
    assert data.summary == expected.summary


def test_format_of_the_file_does_not_matter(ratings: Path, tmp_path: Path) -> None:
    frame = pl.read_csv(ratings)
    frame.write_parquet(tmp_path / "t.parquet")
    frame.write_ndjson(tmp_path / "t.jsonl")
    frame.write_csv(tmp_path / "t.tsv", separator="\t")
    expected = prepare(ratings)
    for name in ("t.parquet", "t.jsonl", "t.tsv"):
        assert prepare(tmp_path / name).fingerprint == expected.fingerprint
    assert prepare(frame).fingerprint == expected.fingerprint


def test_integers_and_text_of_several_files_are_one_kind_of_key(tmp_path: Path) -> None:
    pl.DataFrame({"user": [1, 2], "item": [5, 6]}).write_parquet(tmp_path / "a.parquet")
    table(tmp_path / "b.csv", [("3", "x"), ("10", "5")])
    data = prepare(tmp_path / "a.parquet", tmp_path / "b.csv", split=(1, 0, 0))
    assert data.queries.keys.to_list() == [1, 2, 3, 10]
    assert data.candidates.keys.to_list() == ["5", "6", "x"]
    assert set(splits_of(data)["train"]) == {(1, "5"), (2, "6"), (3, "x"), (10, "5")}


def test_seed_determines_the_split(ratings: Path) -> None:
    assert prepare(ratings, seed=1).fingerprint == prepare(ratings, seed=1).fingerprint
    assert splits_of(prepare(ratings, seed=1)) != splits_of(prepare(ratings, seed=2))


def test_globs_and_lists_name_several_files(tmp_path: Path) -> None:
    for i in range(3):
        table(tmp_path / f"part-{i}.csv", [(i, i)])
    paths = [tmp_path / f"part-{i}.csv" for i in range(3)]
    for inputs in ([f"{tmp_path}/part-*.csv"], paths, [paths], [list(map(str, paths))]):
        assert prepare(*inputs, split=(1, 0, 0)).summary["pairs"] == 3


# ---------------------------------------------------------------------------------- filters


def test_which_of_equal_pairs_is_kept(tmp_path: Path) -> None:
    rows = [("a", "x", 3, 20), ("a", "x", 5, 10), ("a", "x", 4, 15), ("b", "y", 1, 1)]
    path = table(tmp_path / "t.csv", rows)
    for options, grade in (
        ({}, 5.0),
        ({"duplicates": "last"}, 3.0),
        ({"duplicates": "last", "time_column": "none"}, 4.0),
    ):
        assert splits_of(prepare(path, split=(1, 0, 0), **options))["train"]["a", "x"] == grade


def test_equal_grades_are_not_kept(tmp_path: Path) -> None:
    ones = prepare(table(tmp_path / "t.csv", [("a", "x", 1), ("b", "y", 1)]))
    assert (ones.train.grades, ones.summary["grades"]) == (None, None)
    twos = prepare(table(tmp_path / "t.csv", [("a", "x", 2), ("b", "y", 2)]))
    assert splits_of(twos)["train"] == {("a", "x"): 2.0, ("b", "y"): 2.0}


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"min_grade": 9}, "the filter 'grade below 9' removed all 3 pairs", "highest grade"),
        ({"kcore": 3}, "the filter '3-core' removed all 2 pairs", "lower --kcore"),
        ({"kcore": 2, "min_grade": 2}, "the filter '2-core' removed all 2 pairs", "--kcore"),
    ],
)  # fmt: skip
def test_filter_that_leaves_nothing_is_named(
    options: dict[str, Any], message: str, hint: str, tmp_path: Path
) -> None:
    path = table(tmp_path / "t.csv", [("a", "x", 4), ("b", "y", 2), ("a", "x", 1), ("c", "x", -1)])
    with pytest.raises(UserError) as error:
        prepare(path, **options)
    assert str(error.value) == f"{message}"
    assert hint in error.value.hint


def test_grades_of_zero_leave_nothing(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", [("a", "x", 0), ("b", "y", -1)])
    with pytest.raises(UserError, match="the filter 'grade of 0 or less' removed all 2 pairs"):
        prepare(path)


def test_minimum_grade_needs_grades(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a minimum grade needs grades"):
        prepare(table(tmp_path / "t.csv", [("a", "x")]), min_grade=1)


# ---------------------------------------------------------------------------------- bad rows


BAD = 'user,item,rating\na,x,1\n,x,1\na,y\n"a"b,y,2\na,y,2,3\nb,z,much\nb,x,3\n'


def test_bad_rows_are_dropped_and_counted(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(BAD)
    data = prepare(tmp_path / "t.csv")
    assert splits_of(data)["train"] == {("a", "x"): 1.0, ("b", "x"): 3.0}
    assert data.summary["rows"] == 7
    assert {entry["why"]: entry["first"] for entry in data.summary["dropped"]} == {
        "a wrong number of columns": ["t.csv:4", "t.csv:6"],
        "a stray quote": ["t.csv:5"],
        "a missing query": ["t.csv:3"],
        "a grade that is not a number": ["t.csv:7"],
    }


def test_strict_refuses_bad_rows_in_one_error(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(BAD)
    with pytest.raises(UserError) as error:
        prepare(tmp_path / "t.csv", strict=True, out=tmp_path / "out")
    assert str(error.value) == (
        "bad rows: 2 rows with a wrong number of columns (t.csv:4, t.csv:6); "
        "1 row with a stray quote (t.csv:5); 1 row with a missing query (t.csv:3); "
        "1 row with a grade that is not a number (t.csv:7)"
    )
    assert "--strict" in error.value.hint
    assert not (tmp_path / "out").exists()
    prepare(table(tmp_path / "good.csv", [("a", "x", 1), ("a", "x", 1)]), strict=True)


def test_bad_rows_of_several_files_are_counted_together(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("user,item\n,1\n,2\n3,3\n")
    (entry,) = prepare(f"{tmp_path}/*.csv", kcore=0).summary["dropped"][:1]
    assert entry == {
        "why": "a missing query",
        "rows": 4,
        "first": ["a.csv:2", "a.csv:3", "b.csv:2"],
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t.csv is empty"),
        ("user,item\n", "the input has no rows"),
        ("user,item\n,x\n", "there are no usable rows"),
        ("a,b,c\n1,2,3\n", "cannot tell which columns of t.csv are the query and the candidate"),
    ],
)
def test_table_without_usable_rows_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(UserError) as error:
        prepare(tmp_path / "t.csv")
    assert str(error.value) == message
    assert error.value.hint


# ---------------------------------------------------------------------------------- other inputs


def test_source_by_name_and_its_inputs(tmp_path: Path) -> None:
    data = prepare(source="debian-seealso", kcore=5)
    assert data.summary["pairs"] > 1000
    assert not data.queries.holds_integers
    with pytest.raises(UserError, match="debian is bundled and takes no input"):
        prepare(tmp_path, source="debian")
    with pytest.raises(UserError, match="movielens takes"):
        prepare(source="movielens")


def test_source_may_give_graded_rows() -> None:
    assert prepare(source="retinamnist").kind == "graded"


def test_folder_is_refused_with_a_glob(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a folder") as error:
        prepare(tmp_path)
    assert error.value.hint == f"name its files: '{tmp_path}/*.csv'"


def test_no_input_is_refused() -> None:
    for inputs in ((), ([],)):
        with pytest.raises(UserError, match="there is nothing to read"):
            prepare(*inputs)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no file .*none\.csv"):
        prepare(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"duplicates": "first"}, "`duplicates` must be one of highest, last, got 'first'"),
        ({"tokens": "letter"}, "`tokens` must be one of word, word-piece, got 'letter'"),
        (
            {"format": "xml"},
            "`format` must be one of table, adjacency, texts, xc, features, got 'xml'",
        ),
        ({"validation_share": 1.0}, "`validation_share` must be at least 0 and below 1, got 1.0"),
        ({"validation_share": -0.1}, "`validation_share` must be at least 0 and below 1, got -0.1"),
        ({"seed": -1}, "`seed` must be at least 0, got -1"),
        ({"kcore": -2}, "`kcore` must be at least 0, got -2"),
        ({"kcore": 1.5}, "`kcore` must be a whole number, got 1.5"),
        ({"shards": 0}, "`shards` must be at least 1 and at most 99999, got 0"),
        ({"min_grade": float("nan")}, "`min_grade` must be a finite number, got nan"),
        ({"split": "0.9,0.1"}, "the split 0.9,0.1 is not three shares that add up to 1"),
        ({"kcores": 2}, "there is no option 'kcores'"),
        ({"query": "user"}, "there is no option 'query'"),
    ],
)
def test_invalid_option_is_refused_before_reading(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as error:
        prepare(tmp_path / "none.csv", **options)
    assert str(error.value) == message
    assert error.value.hint


def test_unknown_source_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"`source` must be one of amazon, .*, got 'x'"):
        prepare(source="x")


def test_progress_is_reported(ratings: Path, tmp_path: Path) -> None:
    calls: list[tuple[str, float]] = []
    prepare(ratings, out=tmp_path / "out", progress=lambda what, share: calls.append((what, share)))
    steps = [what for what, _ in calls]
    assert steps[0] == "reading ratings.csv"
    assert steps[-1] == "writing"
    assert all(0 <= share <= 1 for _, share in calls)


def test_scratch_files_are_removed(
    ratings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    prepare(ratings)
    with pytest.raises(UserError):
        prepare(ratings, kcore=1000)
    assert list(scratch.iterdir()) == []
