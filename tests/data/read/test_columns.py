"""Which columns are read: those named, then those with a usual name, else an error."""

from pathlib import Path

import polars as pl
import pytest

import rankfold as rf
from rankfold.data.read.columns import NONE, USUAL_NAMES, PairColumns, choose_columns, is_header
from rankfold.errors import UserError


def choose(names: str, **columns: str) -> PairColumns:
    return choose_columns(names.split(","), PairColumns(**columns), "t.csv")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("userId,movieId,rating,timestamp", ("userId", "movieId", "rating", "timestamp")),
        ("user_id,item_id", ("user_id", "item_id", None, None)),
        ("item,user", ("user", "item", None, None)),
        ("User ID,Item-Id,Date", ("User ID", "Item-Id", None, "Date")),
        ("unixReviewTime,asin,reviewerID", ("reviewerID", "asin", None, "unixReviewTime")),
        ("from,to,weight", ("from", "to", "weight", None)),
        ("id,note,candidate,query", ("query", "candidate", None, None)),
        (" user , item ", (" user ", " item ", None, None)),
    ],
)
def test_usual_names_are_found_in_any_position(names: str, expected: tuple[str | None]) -> None:
    assert choose(names) == expected


def test_names_are_tried_in_the_order_of_the_list() -> None:
    assert choose("session,user,item").query == "user"
    assert choose("asin,parent_asin,user").candidate == "parent_asin"


def test_the_first_of_names_that_differ_in_case_is_used() -> None:
    assert choose("User,user,item").query == "User"


def test_every_usual_name_belongs_to_one_role() -> None:
    names = [name for listed in USUAL_NAMES.values() for name in listed.split()]
    assert len(names) == len(set(names))


def test_named_columns_come_first() -> None:
    chosen = choose("user,item,a,rating", query="a", candidate="user", grade="item")
    assert chosen == ("a", "user", "item", None)


def test_named_column_is_not_guessed_again() -> None:
    assert choose("user,user_id,item", candidate="user") == ("user_id", "user", None, None)


def test_none_skips_the_column() -> None:
    assert choose("user,item,rating,time", grade=NONE, time=NONE) == ("user", "item", None, None)


def test_two_columns_are_query_and_candidate_in_their_order() -> None:
    assert choose("left,right") == ("left", "right", None, None)
    assert choose("thing,user") == ("user", "thing", None, None)
    assert choose("item,thing") == ("thing", "item", None, None)
    assert choose("left,right", query="right") == ("right", "left", None, None)


@pytest.mark.parametrize(
    ("names", "columns", "message", "hint"),
    [
        (
            "a,b,item",
            {},
            "cannot tell which column of t.csv is the query",
            "it has a, b, item; use --query-column NAME",
        ),
        (
            "a,b,c",
            {},
            "cannot tell which columns of t.csv are the query and the candidate",
            "it has a, b, c; use --query-column NAME and --candidate-column NAME",
        ),
        (
            "anna,tea,3",
            {},
            "cannot tell which columns of t.csv are the query and the candidate",
            "it has anna, tea, 3; use --query-column NAME and --candidate-column NAME, and "
            "--no-header if this is a row",
        ),
        (
            "user,b,c",
            {},
            "cannot tell which column of t.csv is the candidate",
            "it has user, b, c; use --candidate-column NAME",
        ),
        (
            "user",
            {},
            "cannot tell which column of t.csv is the candidate",
            "it has user; use --candidate-column NAME",
        ),
        (
            "thing,count",
            {},
            "cannot tell which column of t.csv is the candidate",
            "it has thing, count; use --candidate-column NAME",
        ),
        (
            "user,item",
            {"candidate": "item_id"},
            "t.csv has no column 'item_id'",
            "it has user, item; use --candidate-column NAME",
        ),
        (
            "user,item",
            {"time": "when"},
            "t.csv has no column 'when'",
            "it has user, item; use --time-column NAME",
        ),
        (
            "user,item",
            {"query": NONE},
            "cannot tell which column of t.csv is the query",
            "it has user, item; use --query-column NAME",
        ),
        (
            "user,item",
            {"query": "item", "candidate": "item"},
            "column 'item' of t.csv cannot be both query and candidate",
            "it has user, item; use --query-column NAME and --candidate-column NAME",
        ),
        (
            ",".join("abcdefghijklmn"),
            {"candidate": "n"},
            "cannot tell which column of t.csv is the query",
            "it has a, b, c, d, e, f, g, h, i, j, k, l, ...; use --query-column NAME",
        ),
    ],
)
def test_failed_guess_names_the_columns(
    names: str, columns: dict[str, str], message: str, hint: str
) -> None:
    with pytest.raises(UserError) as error:
        choose(names, **columns)
    assert str(error.value) == message
    assert error.value.hint == hint


def test_words_that_name_both_sides_are_names_of_columns() -> None:
    assert is_header(["user", "item", "x"])
    assert not is_header(["user", "x"])
    assert not is_header(["1", "2"])


@pytest.mark.parametrize("name", ["*", "^.*$", "^b$"])
@pytest.mark.parametrize("form", ["csv", "jsonl", "dat", "memory", "features"])
def test_a_name_that_polars_takes_for_a_pattern_is_refused(
    form: str, name: str, tmp_path: Path
) -> None:
    """A star stands for every column, and ``^b$`` for b."""
    table = pl.DataFrame({"a": ["x", "y"], "b": ["p", "q"], name: ["1", "2"]})
    path = tmp_path / f"odd.{form}"
    table.write_ndjson(path) if form == "jsonl" else table.write_csv(path)
    if form == "dat":
        lines = [
            "@relation r",
            *(f"@attribute {each} real" for each in ("a", name)),
            "@data",
            "1,2",
        ]
        path.write_text("\n".join(lines))
    in_memory = form in ("memory", "features")
    options = {"format": "features"} if form in ("features", "dat") else {}
    with pytest.raises(UserError, match=r"cannot be read: its name is a pattern"):
        rf.prepare(table if in_memory else path, **options)
