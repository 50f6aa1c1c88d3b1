"""Gowalla, Yelp2018 and Amazon-Book in the splits of [he2020]: ``train.txt`` and ``test.txt``.

A line is a user and the items of this user, ``user item item ...``. Some copies divide the training
pairs once more, and have a ``valid.txt`` or ``val.txt``.
"""

from collections.abc import Mapping
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
    files = [file for path in paths for file in unpacked(path, _SPLIT_OF, reading.scratch)]
    by_split = {_SPLIT_OF.get(plain_name(file)): file for file in files}
    if not {TRAIN, TEST} <= set(by_split) or len(by_split) < len(files) or None in by_split:
        named = ", ".join(file.name for file in files) or "none of them"
        raise UserError(
            f"expected train.txt, test.txt and optionally valid.txt, got {named}",
            hint="name the folder that holds them, or the files",
        )
    return {
        number: read_adjacency(by_split[number]).select(_NUMBERS)
        for number in sorted(number for number in by_split if number is not None)
    }
