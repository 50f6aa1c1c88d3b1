"""What the sources share that are tab-separated files without a header."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from rankfold.data.build.split import TEST, TRAIN, VALIDATION
from rankfold.data.read.documents import Documents, TextTable
from rankfold.data.read.tables import readable
from rankfold.errors import UserError


def find(paths: Sequence[Path], *names: str) -> list[Path]:
    """The named files, plain or compressed, among the paths or in the one folder that they are."""
    within = list(paths)
    if len(within) == 1 and within[0].is_dir():
        within = sorted(within[0].iterdir())
    found = []
    for name in names:
        like = [path for path in within if path.name in (name, f"{name}.zst", f"{name}.gz")]
        if not like:
            raise UserError(
                f"there is no {name}", hint=f"name {' and '.join(names)}, or their folder"
            )
        found.append(like[0])
    return found


def read(path: Path, names: Sequence[str]) -> pl.DataFrame:
    """The first columns of a file as text, by these names; what a short line lacks is null."""
    with readable(path.name):
        cells = pl.scan_lines(path, glob=False).select(cells=pl.col("line").str.split("\t"))
        cell = pl.col("cells").list
        table = cells.select(cell.get(i, null_on_oob=True).alias(n) for i, n in enumerate(names))
        return table.collect()


def numbers(column: pl.Series, n: int, where: str) -> pl.Series:
    """Numbers below n, parted by spaces, as lists."""
    lists = column.fill_null("").str.extract_all(r"\S+")
    flat = lists.explode(empty_as_null=False, keep_nulls=False)
    found = flat.cast(pl.Int64, strict=False)
    wrong = flat.filter((found.is_null() | (found < 0) | (found >= n)).fill_null(value=True))
    if len(wrong):
        raise UserError(f"{where} names {wrong[0]!r}", hint=f"expected numbers from 0 to {n - 1:,}")
    return lists.cast(pl.List(pl.Int64))


def check_rows(table: pl.DataFrame, where: str) -> None:
    """A UserError unless the first column counts the rows."""
    rows = pl.int_range(len(table), eager=True).cast(pl.String)
    if len(table) == 0 or not table.to_series(0).equals(rows):
        raise UserError(f"{where} does not count its rows", hint="its first column is 0, 1, 2, ...")


def linked(pairs: pl.DataFrame, keys: pl.Series, words: pl.Series) -> Documents:
    """Pages with links among themselves; those without any are left out.

    Every tenth page by its number is for the test, and of the others that have links every
    twentieth is for validation.

    Args:
        pairs: numbers ``from`` and ``to`` of pages.
        keys: of each page.
        words: likewise.
    """
    pages = pairs["from"].unique().sort()
    validation = pages.filter(pages % 10 != 0).gather_every(20)
    source = pl.col("from")
    split = (
        pl.when(source % 10 == 0)
        .then(TEST)
        .when(source.is_in(validation.implode()))
        .then(VALIDATION)
        .otherwise(TRAIN)
    )
    return numbered(pairs.with_columns(split=split.cast(pl.UInt8)), keys, words)


def numbered(pairs: pl.DataFrame, keys: pl.Series, words: pl.Series) -> Documents:
    """Pairs ``from, to, split`` of numbers, with the keys and words of those that have a pair."""
    tables = {}
    for side, column in (("query", "from"), ("candidate", "to")):
        used = pairs[column].unique().sort()
        tables[side] = TextTable(f"the {side} texts", keys.gather(used), words.gather(used))
    rows = pairs.lazy().select(
        "split",
        query=pl.lit(keys).gather(pl.col("from")),
        candidate=pl.lit(keys).gather(pl.col("to")),
    )
    return Documents(rows, tables)


def drawn_by_pair(pairs: pl.DataFrame) -> pl.DataFrame:
    """Pairs ``from, to`` with a ``split``: a pair and its inverse go together, a tenth to test."""
    ends = pairs.select("from", "to").to_numpy()
    whole = ends.min(axis=1) * 10**6 + ends.max(axis=1)
    unordered, place = np.unique(whole, return_inverse=True)
    drawn = np.random.default_rng(0).random(len(unordered))[place]
    splits = np.where(drawn < 0.1, TEST, np.where(drawn < 0.145, VALIDATION, TRAIN))
    return pairs.with_columns(split=pl.Series(splits, dtype=pl.UInt8))
