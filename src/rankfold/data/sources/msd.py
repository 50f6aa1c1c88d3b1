"""The taste profiles of the Echo Nest, songs of the Million Song Dataset: ``train_triplets.txt``.

A line is ``user TAB song TAB plays``, without a header.
"""

from pathlib import Path

import polars as pl

from rankfold.data.read.files import lines, unpacked
from rankfold.data.read.reading import Reading
from rankfold.errors import UserError

_COLUMNS = {"query": pl.String, "candidate": pl.String, "grade": pl.Float64}
_FILES = ("train_triplets.txt",)


def read(paths: list[Path], reading: Reading) -> pl.LazyFrame:
    """Rows ``query`` (user), ``candidate`` (song) and ``grade`` (plays).

    A cell that is not a number is left empty: it counts as a bad row later.
    """
    return pl.concat([_scan(file) for path in paths for file in _files(path, reading)])


def _files(path: Path, reading: Reading) -> list[Path]:
    files = unpacked(path, _FILES, reading.scratch)
    if not files:
        raise UserError(f"{path} holds no taste profiles", hint=f"expected {_FILES[0]}")
    return files


def _scan(path: Path) -> pl.LazyFrame:
    _, first_line = next(lines(path), (1, ""))
    if first_line.count("\t") != len(_COLUMNS) - 1:
        raise UserError(
            f"{path} is not a file of taste profiles: its first line is {first_line[:80]!r}",
            hint="expected a user, a song and a number of plays, separated by tabs",
        )
    return pl.scan_csv(
        path,
        has_header=False,
        separator="\t",
        schema=_COLUMNS,
        quote_char=None,
        ignore_errors=True,
        glob=False,
    )
