"""Amazon reviews, collected by McAuley and others in 2014, 2018 and 2023.

Each collection has CSV files of ratings and JSON lines of full reviews; the first line decides. The
CSV of 2014 is ``user,item,rating,timestamp`` without a header, that of 2018
``item,user,rating,timestamp`` without a header; that of 2023 has a header.

Without a header, the keys decide which column is the user: a reviewer is an A with nine or more
letters and digits; an item (ASIN) is a B with nine, or an ISBN: nine digits and then a digit or X.
The order that fits more of the first rows wins. A file that fits neither is refused.
"""

import json
import re
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl

from rankfold.data.read.files import lines
from rankfold.data.read.reading import Reading, scan_csv, spool
from rankfold.data.read.record_reader import parse_lines
from rankfold.errors import UserError

_SCHEMA = {"query": pl.String, "candidate": pl.String, "grade": pl.Float64, "time": pl.Int64}
HEADER = {"user_id": "query", "parent_asin": "candidate", "rating": "grade", "timestamp": "time"}
_USER_FIRST = ("query", "candidate", "grade", "time")  # 2014
_ITEM_FIRST = ("candidate", "query", "grade", "time")  # 2018
_USER = re.compile(r"A[0-9A-Z]{9,}")
_ITEM = re.compile(r"B[0-9A-Z]{9}|[0-9]{9}[0-9X]")
_ROWS_SAMPLED = 1000

Row = tuple[str | float | None, ...]  # in the order of _SCHEMA


def read(paths: list[Path], reading: Reading) -> pl.LazyFrame:
    """Rows ``query`` (user), ``candidate`` (item), ``grade`` (stars) and ``time``."""
    frames = [_scan(path, reading).select(list(_SCHEMA)) for path in paths]
    time = pl.col("time")  # 2023 has milliseconds: as seconds they would be beyond the year 5000
    seconds = pl.when(time > 10**11).then(time / 1000).otherwise(time.cast(pl.Float64))
    return pl.concat(frames).with_columns(time=seconds)


def _scan(path: Path, reading: Reading) -> pl.LazyFrame:
    _, first_line = next(lines(path), (1, ""))
    if first_line.startswith("{"):
        return spool(parse_lines(path, _review, reading), _SCHEMA, reading)
    has_header = set(HEADER) <= set(first_line.split(","))
    names = [HEADER.get(n, n) for n in first_line.split(",")] if has_header else _order(path)
    schema = {name: _SCHEMA.get(name, pl.String) for name in names}
    return scan_csv(path, schema, skip_lines=int(has_header))


# ---------------------------------------------------------------------------------- CSV


def _order(path: Path) -> tuple[str, ...]:
    """The columns of a CSV file without header; see the top of this file."""
    head = [line for _, line in islice(lines(path), _ROWS_SAMPLED)]
    cells = [line.split(",") for line in head if line.count(",") == 3]
    user_first = sum(_is_user_and_item(a, b) for a, b, *_ in cells)
    item_first = sum(_is_user_and_item(b, a) for a, b, *_ in cells)
    if user_first == item_first:
        raise UserError(
            f"cannot tell users from items in {path}: its first line is {''.join(head[:1])[:80]!r}",
            hint="expected user,item,rating,timestamp or item,user,rating,timestamp with Amazon's "
            "keys; for other keys use --format table, --query-column and --candidate-column",
        )
    return _USER_FIRST if user_first > item_first else _ITEM_FIRST


def _is_user_and_item(user: str, item: str) -> bool:
    return bool(_USER.fullmatch(user) and _ITEM.fullmatch(item))


# ---------------------------------------------------------------------------------- JSON lines


def _review(line: str) -> list[Row]:
    """2014 and 2018 have a reviewerID, 2023 a user_id; missing values are None."""
    review: dict[str, Any] = json.loads(line)
    if "reviewerID" in review:
        names = ("reviewerID", "asin", "overall", "unixReviewTime")
    else:
        item = "parent_asin" if "parent_asin" in review else "asin"
        names = ("user_id", item, "rating", "timestamp")
    values = zip((str, str, float, int), map(review.get, names), strict=True)
    return [tuple(None if value is None else kind(value) for kind, value in values)]
