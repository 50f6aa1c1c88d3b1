"""The taste profiles of the Echo Nest, songs of the Million Song Dataset: ``train_triplets.txt``.

A line is ``user TAB song TAB plays``, without a header.
"""

from itertools import chain
from pathlib import Path

import polars as pl

from rankfold.data.read.files import lines, unpacked
from rankfold.data.read.reading import Reading, scan_csv
from rankfold.errors import UserError

_COLUMNS = {"query": pl.String, "candidate": pl.String, "grade": pl.Float64}
_NAMES = ("train_triplets.txt",)


def read(paths: list[Path], reading: Reading) -> pl.LazyFrame:
    """Rows ``query`` (user), ``candidate`` (song) and ``grade`` (plays).

    A cell that is not a number is left empty: it counts as a bad row later.
    """
    files = [unpacked(path, _NAMES, "taste profiles", reading.scratch) for path in paths]
    return pl.concat(map(_scan, chain(*files)))


def _scan(path: Path) -> pl.LazyFrame:
    _, first_line = next(lines(path), (1, ""))
    if first_line.count("\t") != len(_COLUMNS) - 1:
        raise UserError(
            f"{path} is not a file of taste profiles: its first line is {first_line[:80]!r}",
            hint="expected a user, a song and a number of plays, separated by tabs",
        )
    return scan_csv(path, _COLUMNS, separator="\t")
