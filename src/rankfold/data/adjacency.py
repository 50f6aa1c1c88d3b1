"""Adjacency files: ``query candidate candidate ...`` on each line, parted by white space."""

from pathlib import Path

import polars as pl


def read_adjacency(path: Path) -> pl.LazyFrame:
    """Rows ``query, candidate``; a query without candidates and a blank line give none."""
    lines = pl.scan_csv(
        path,
        has_header=False,
        separator="\x01",  # never in such a file: a line is one column
        quote_char=None,
        infer_schema=False,
        new_columns=["line"],
        raise_if_empty=False,
        glob=False,
    )
    words = lines.select(words=pl.col("line").str.extract_all(r"\S+"))
    rows = words.select(query=pl.col("words").list.first(), candidate=pl.col("words").list.slice(1))
    return rows.explode("candidate").drop_nulls()


def looks_like_adjacency(first_line: str) -> bool:
    """True if a line has several words and no mark that parts the columns of a table."""
    return len(first_line.split()) > 1 and not any(mark in first_line for mark in ",\t;|")
