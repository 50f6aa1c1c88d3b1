"""Ratings of the Netflix Prize: ``training_set/mv_*.txt`` or ``combined_data_*.txt``.

A line ``MovieID:`` starts the ratings of a movie, and ``CustomerID,Rating,Date`` is one of them. A
file of the training set has one movie, a combined file thousands of them.
"""

import re
from collections.abc import Iterable, Iterator
from io import BytesIO
from itertools import chain
from pathlib import Path

import polars as pl

from rankfold.data.read.files import open_binary, unpacked
from rankfold.data.read.reading import SPOOL_ROWS, Reading, spool_frames
from rankfold.errors import UserError

_SCHEMA = {"query": pl.Int64, "candidate": pl.Int64, "grade": pl.Float64, "time": pl.Int64}
_NAMES = ("combined_data_*.txt", "mv_*.txt")
BLOCK = 2**24  # bytes


def read(paths: list[Path], reading: Reading) -> pl.LazyFrame:
    """Rows ``query`` (customer), ``candidate`` (movie), ``grade`` (stars) and ``time``."""
    inside = [path / "training_set" for path in paths]
    folders = [one if one.is_dir() else path for path, one in zip(paths, inside, strict=True)]
    what = "ratings of the Netflix Prize"
    files = chain(*(unpacked(path, _NAMES, what, reading.scratch) for path in folders))
    return spool_frames(_joined(chain.from_iterable(map(_blocks, files))), _SCHEMA, reading)


def _blocks(path: Path) -> Iterator[pl.DataFrame]:
    """The ratings of a file, a few megabytes at a time; a movie may continue in the next block."""
    movie: int | None = None
    with open_binary(path) as file:
        while text := file.read(BLOCK) + file.readline():
            if movie is None and not re.match(rb"(?:\xef\xbb\xbf)?\d+:\s", text):
                first = text.split(b"\n")[0][:80].decode(errors="replace")
                raise UserError(
                    f"{path} is not a file of the Netflix Prize: its first line is {first!r}",
                    hint="expected the number of a movie and a colon, such as 1:",
                )
            frame = _ratings(text, movie)
            movie = frame["candidate"][-1] if len(frame) else movie
            yield frame.filter(~pl.col("starts")).select(list(_SCHEMA))


def _joined(frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """The same rows in fewer frames: most movies have a small file."""
    joined = pl.DataFrame(schema=_SCHEMA)
    for frame in frames:
        joined = joined.vstack(frame)
        if len(joined) >= SPOOL_ROWS:
            yield joined
            joined = joined.clear()
    yield joined


def _ratings(text: bytes, movie: int | None) -> pl.DataFrame:
    """The lines as rows; a cell that is not a number or a date is left empty."""
    lines = pl.read_csv(
        BytesIO(text), has_header=False, separator="\1", schema={"line": pl.String}, quote_char=None
    )
    line = pl.col("line").str.strip_chars("\ufeff \r")
    number = line.str.extract(r"^(\d+):$").cast(pl.Int64, strict=False)
    key, stars, date = (line.str.split_exact(",", 2).struct[n] for n in range(3))
    return lines.drop_nulls().select(
        query=key.cast(pl.Int64, strict=False),
        candidate=number.forward_fill().fill_null(pl.lit(movie, pl.Int64)),
        grade=stars.cast(pl.Float64, strict=False),
        time=date.str.to_date("%Y-%m-%d", strict=False).dt.epoch("s"),
        starts=number.is_not_null(),
    )
