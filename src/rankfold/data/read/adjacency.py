"""Adjacency files: ``query candidate candidate ...`` on each line, parted by white space."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from rankfold.data.read.tables import names_columns


def read_adjacency(path: Path) -> pl.LazyFrame:
    """Rows ``query, candidate``; a query without candidates and a blank line give none."""
    line = pl.col("line").str.strip_prefix("\ufeff")  # some editors begin a file with this mark
    words = pl.scan_lines(path, glob=False).select(words=line.str.extract_all(r"\S+"))
    rows = words.select(query=pl.col("words").list.first(), candidate=pl.col("words").list.slice(1))
    return rows.explode("candidate", empty_as_null=False)


def looks_like_adjacency(first_lines: Sequence[str]) -> bool:
    """True if a line has several words and none has the marks of a table or names its columns."""
    words = [line.split() for line in first_lines]
    marked = any(mark in line for line in first_lines for mark in ",\t;|")
    return not marked and any(len(w) > 1 for w in words) and not any(map(names_columns, words))
