"""Public data sets by name. To add one: one file, one line here, one test on a small file in its format.

A reader gets its input files and returns rows ``query, candidate[, grade][, time]`` (time in seconds),
or a whole ``Dataset`` where the rows are graded.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import polars as pl

from rankfold.data.reading import Reading
from rankfold.types import Dataset


class Source(NamedTuple):
    """One public data set or format."""

    summary: str
    read: Callable[[list[Path], Reading], pl.LazyFrame | Dataset]
    inputs: str  # what the input files are; empty for bundled data


SOURCES: dict[str, Source] = {}
