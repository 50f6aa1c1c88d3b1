"""Steam reviews, crawled by McAuley and others: one Python dict per line, not JSON.

``steam_reviews.json.gz`` has one review per line, ``australian_user_reviews.json.gz`` one user per
line with a list of reviews. Lines are parsed as literals, never evaluated.
"""

import ast
import re
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl

from rankfold.data.read.reading import Reading, spool
from rankfold.data.read.record_reader import parse_lines

Row = tuple[Any, ...]


def read(paths: list[Path], reading: Reading) -> pl.LazyFrame:
    """Rows ``query`` (user name, or user id without one), ``candidate`` (game) and ``time``."""
    schema = {"query": pl.String, "candidate": pl.String, "date": pl.String}
    time = pl.col("date").str.to_date("%Y-%m-%d", strict=False).dt.epoch("s")
    rows = chain.from_iterable(parse_lines(path, review, reading) for path in paths)
    return spool(rows, schema, reading).select("query", "candidate", time=time)


def read_users(paths: list[Path], reading: Reading) -> pl.LazyFrame:
    """Rows ``query`` (user id), ``candidate`` (game) and ``grade``, 1 if recommended, else 0.

    They have no time: the crawled pages omit the year of the latest dates.
    """
    schema = {"query": pl.String, "candidate": pl.String, "grade": pl.Float64}
    rows = chain.from_iterable(parse_lines(path, _reviews_of_user, reading) for path in paths)
    return spool(rows, schema, reading)


def _reviews_of_user(line: str) -> list[Row]:
    """User, game and grade of each review of a user."""
    user = ast.literal_eval(line)
    return [
        (_paired(user["user_id"]), _paired(review["item_id"]), float(review["recommend"]))
        for review in user["reviews"]
    ]


def review_by_literal(line: str) -> list[Row]:
    """User, game and date of a review, by Python's parser: the reference for ``review``."""
    record = ast.literal_eval(line)
    user = record.get("username")
    user = record.get("user_id") if user is None else user
    return [(_paired(user), _paired(record.get("product_id")), _paired(record.get("date")))]


def _paired(text: str | None) -> str | None:
    """``text`` with surrogate pairs, which Python 2 may write, joined to single characters."""
    if text is None or text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# ---------------------------------------------------------------------------------- faster

_STRING = r"""u?(?:'[^'\\]*+(?:\\.[^'\\]*+)*+'|"[^"\\]*+(?:\\.[^"\\]*+)*+")"""
_OTHER = r"(?:True|False|None|-?\d++(?:\.\d++)?+(?:e[-+]?\d++)?+)"
_REVIEW = re.compile(
    rf"""\{{(?:(?:u?'username':\ (?P<name>{_STRING})
                 |u?'user_id':\ (?P<id>{_STRING})
                 |u?'product_id':\ (?P<product>{_STRING})
                 |u?'date':\ (?P<date>{_STRING})
                 |{_STRING}:\ (?:{_STRING}|{_OTHER})
              )(?:,\ |(?=\}}$)))*+\}}""",
    re.VERBOSE,
)


def review(line: str) -> list[Row]:
    """User, game and date of a review by a regular expression, several times as fast."""
    match = _REVIEW.fullmatch(line)
    if match is None:
        return review_by_literal(line)
    name, user_id, product, date = map(_string, match.group("name", "id", "product", "date"))
    return [(user_id if name is None else name, product, date)]


def _string(literal: str | None) -> str | None:
    if literal is None:
        return None
    if "\\" in literal:
        return _paired(ast.literal_eval(literal))
    return literal.removeprefix("u")[1:-1]
