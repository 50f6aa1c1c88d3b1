import gzip
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rankfold.data.read.reading import Reading
from rankfold.data.sources.steam import read, read_users, review, review_by_literal


def seconds(year: int, month: int, day: int) -> int:
    return int(datetime(year, month, day, tzinfo=UTC).timestamp())


FILES = Path(__file__).parent / "files"
LINES = (FILES / "steam_reviews.json").read_text().splitlines()
ROWS = [
    ("Grey Heron", "725280", seconds(2017, 12, 17)),
    ("\u2b80Freya", "328100", seconds(2017, 7, 25)),
    ("Alice's cat", "10", 86400),
    ("76561190000000002", "10", 2 * 86400),
    ("say \"hi\" 'now' \\", "20", 0),
    ("\U0001f600 \U0001f600", "30", 3 * 86400),
    ("7", "40", None),
    ("76561190000000003", "40", seconds(2011, 2, 28)),
    ("x, y", "50", seconds(2012, 2, 29)),
    ("{brace}", "50", seconds(2013, 3, 1)),
    (" two  spaces ", "60", seconds(2014, 4, 30)),
    (None, "60", seconds(2015, 5, 31)),
]
BAD_LINES = [
    "{u'username': u'cut sho",
    "__import__('os').abort()",
    "{u'username': __import__('os').abort(), u'product_id': u'1'}",
    "[1, 2]",
    "{u'username': 7, u'product_id': [u'1']}",
]


def test_rows_of_reviews(tmp_path: Path, reading: Reading) -> None:
    path = tmp_path / "steam_reviews.json.gz"
    path.write_bytes(gzip.compress(("\n".join(LINES) + "\n").encode()))
    frame = read([path], reading).collect(engine="streaming")
    assert frame.columns == ["query", "candidate", "time"]
    assert frame.rows() == ROWS
    assert reading.bad.counts == {}


def test_unreadable_lines_are_noted_and_never_run(tmp_path: Path, reading: Reading) -> None:
    path = tmp_path / "steam.json"
    path.write_text("\n".join([LINES[0], *BAD_LINES, "", LINES[1]]))
    assert read([path], reading).collect().rows() == ROWS[:2]
    assert reading.bad.counts == {"an unreadable line": 5}
    assert reading.bad.places == {
        "an unreadable line": ["steam.json:2", "steam.json:3", "steam.json:4"]
    }


def test_fast_parser_equals_the_parser_of_literals() -> None:
    rng = random.Random(0)
    for _ in range(2000):
        line = random_line(rng)
        assert review(line) == review_by_literal(line)


def random_line(rng: random.Random) -> str:
    """A dict of the fields of a review, in any order, with all kinds of characters in strings."""
    marks = [
        "'",
        '"',
        "\\",
        "u'",
        ": ",
        ", ",
        "{",
        "}",
        "[",
        "\n",
        "\u00e9",
        "\U0001f600",
        "date",
        "a",
    ]
    names = ["username", "user_id", "product_id", "date", "text", "found_funny", "hours"]
    record: dict[str, Any] = {}
    for name in rng.sample(names, rng.randint(1, len(names))):
        text = "".join(rng.choices(marks, k=rng.randint(0, 6)))
        is_other = name == "hours" or rng.random() < 0.05
        record[name] = rng.choice([1.5, -3, 1e-07, True, None]) if is_other else text
    for name in ("username", "user_id", "product_id", "date"):
        if name in record and not isinstance(record[name], str):
            record[name] = None
    items = (f"{literal(name, rng)}: {literal(value, rng)}" for name, value in record.items())
    return "{" + ", ".join(items) + "}"


def literal(value: object, rng: random.Random) -> str:
    if not isinstance(value, str):
        return repr(value)
    return rng.choice(["u", ""]) + rng.choice([repr, ascii])(value)


def test_rows_of_australian_users(reading: Reading) -> None:
    frame = read_users([FILES / "australian_user_reviews.json"], reading).collect()
    assert frame.columns == ["query", "candidate", "grade"]
    assert frame.rows() == [
        ("76561190000000004", "1250", 1.0),
        ("76561190000000004", "22200", 0.0),
        ("quokka", "1250", 1.0),
    ]
    assert reading.bad.places == {"an unreadable line": ["australian_user_reviews.json:3"]}


@pytest.mark.parametrize("line", BAD_LINES)
def test_reference_refuses_the_same_lines(line: str) -> None:
    with pytest.raises((ValueError, SyntaxError, AttributeError)):
        review_by_literal(line)
