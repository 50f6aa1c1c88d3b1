"""Adjacency files: ``query candidate candidate ...`` on each line, separated by white space."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from rankfold.data.read.columns import is_header


def read_adjacency(path: Path) -> pl.LazyFrame:
    """Rows ``query, candidate``. Blank lines and queries without candidates have none."""
    line = pl.col("line").str.strip_prefix("\ufeff")  # a byte order mark
    words = pl.scan_lines(path, glob=False).select(words=line.str.extract_all(r"\S+"))
    rows = words.select(query=pl.col("words").list.first(), candidate=pl.col("words").list.slice(1))
    return rows.explode("candidate", empty_as_null=False)


def looks_like_adjacency(first_lines: Sequence[str]) -> bool:
    """True if a line has several words and none has a table's separators or is a header."""
    words = [line.split() for line in first_lines]
    separated = any(mark in line for line in first_lines for mark in ",\t;|")
    return not separated and any(len(w) > 1 for w in words) and not any(map(is_header, words))
