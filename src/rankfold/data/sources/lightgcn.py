"""Gowalla, Yelp2018 and Amazon-Book in the splits of [he2020]: ``train.txt`` and ``test.txt``.

A line is a user and the items of this user, ``user item item ...``. Some copies divide the training
pairs once more, and have a ``valid.txt`` or ``val.txt``.
"""

from collections.abc import Mapping
from itertools import chain
from pathlib import Path

import polars as pl

from rankfold.data.read.adjacency import read_adjacency
from rankfold.data.read.files import plain_name, unpacked
from rankfold.data.read.reading import Reading
from rankfold.errors import UserError
from rankfold.types import TEST, TRAIN, VALIDATION

_SPLIT_OF = {"train.txt": TRAIN, "valid.txt": VALIDATION, "val.txt": VALIDATION, "test.txt": TEST}
_NUMBERS = pl.col("query", "candidate").cast(pl.Int64, strict=False)


def read(paths: list[Path], reading: Reading) -> Mapping[int, pl.LazyFrame]:
    """Rows ``query`` (user) and ``candidate`` (item) of each split, by its number."""
    files = [*chain(*(unpacked(path, _SPLIT_OF, "splits", reading.scratch) for path in paths))]
    by_split = {_SPLIT_OF.get(plain_name(file), -1): file for file in files}
    if not {TRAIN, TEST} <= by_split.keys() or len(by_split) < len(files) or -1 in by_split:
        raise UserError(
            "expected train.txt, test.txt and optionally valid.txt, got "
            + ", ".join(file.name for file in files),
            hint="name the folder that holds them, or the files",
        )
    return {n: read_adjacency(by_split[n]).select(_NUMBERS) for n in sorted(by_split)}
