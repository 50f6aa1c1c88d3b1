"""Tab-separated files without a header, as several sources have them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from rankfold.data.read.results import Documents, TextTable
from rankfold.data.read.tables import readable
from rankfold.errors import UserError
from rankfold.types import TEST, TRAIN, VALIDATION


def find(paths: Sequence[Path], *names: str) -> list[Path]:
    """The named files, plain or compressed, among the paths or in a single folder."""
    given = list(paths)
    if len(given) == 1 and given[0].is_dir():
        given = sorted(given[0].iterdir())
    files = []
    for name in names:
        matches = [path for path in given if path.name in (name, f"{name}.zst", f"{name}.gz")]
        if not matches:
            raise UserError(
                f"there is no {name}", hint=f"name {' and '.join(names)}, or their folder"
            )
        files.append(matches[0])
    return files


def read(path: Path, names: Sequence[str]) -> pl.DataFrame:
    """The first columns of a file as text, with these names; missing cells are null."""
    with readable(path.name):
        cells = pl.scan_lines(path, glob=False).select(cells=pl.col("line").str.split("\t"))
        cell = pl.col("cells").list
        table = cells.select(cell.get(i, null_on_oob=True).alias(n) for i, n in enumerate(names))
        return table.collect()


def read_links(paths: Sequence[Path], *files: str, names: Sequence[str]) -> list[pl.DataFrame]:
    """The rows of one file, and pairs ``from, to`` of their numbers from another."""
    about, links = find(paths, *files)
    rows = read(about, names)
    check_rows(rows, about.name)
    table = read(links, ("from", "to"))
    ends = {end: numbers(table[end], len(rows), links.name) for end in table.columns}
    return [rows, pl.DataFrame(ends).explode("from").explode("to").drop_nulls()]


def numbers(column: pl.Series, n: int, where: str) -> pl.Series:
    """Lists of numbers below n, which are separated by spaces."""
    lists = column.fill_null("").str.extract_all(r"\S+")
    flat = lists.explode(empty_as_null=False, keep_nulls=False)
    parsed = flat.cast(pl.Int64, strict=False)
    wrong = flat.filter((parsed.is_null() | (parsed < 0) | (parsed >= n)).fill_null(value=True))
    if len(wrong):
        raise UserError(f"{where} names {wrong[0]!r}", hint=f"expected numbers from 0 to {n - 1:,}")
    return lists.cast(pl.List(pl.Int64))


def check_rows(table: pl.DataFrame, where: str) -> None:
    """A UserError unless the first column numbers the rows."""
    rows = pl.int_range(len(table), eager=True).cast(pl.String)
    if len(table) == 0 or not table.to_series(0).equals(rows):
        raise UserError(
            f"{where} does not number its rows", hint="expected a first column 0, 1, 2, ..."
        )


def linked(pairs: pl.DataFrame, keys: pl.Series, words: pl.Series) -> Documents:
    """Pages with links to each other; pages without links are dropped.

    ``pairs`` has the numbers ``from`` and ``to`` of pages. Multiples of 10 are test. Of the other
    pages with links, every twentieth is validation.
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
    """Pairs ``from, to, split`` of numbers, with the keys and words of both ends."""
    tables = {}
    for side, column in (("query", "from"), ("candidate", "to")):
        used = pairs[column].unique().sort()
        tables[side] = TextTable(f"the {side} texts", keys.gather(used), words.gather(used))
    return Documents(named(pairs.lazy(), keys, "split"), tables)


def named(pairs: pl.LazyFrame, keys: pl.Series, *columns: str) -> pl.LazyFrame:
    """Pairs ``from, to`` of numbers as pairs of keys, with some other columns."""
    query, candidate = (pl.lit(keys).gather(pl.col(end)) for end in ("from", "to"))
    return pairs.select(*columns, query=query, candidate=candidate)


def drawn_by_pair(pairs: pl.DataFrame) -> pl.DataFrame:
    """Pairs ``from, to`` with a random ``split``, a tenth in test; inverse pairs stay together."""
    ends = pairs.select("from", "to").to_numpy()
    codes = ends.min(axis=1) * 10**6 + ends.max(axis=1)
    unordered, place = np.unique(codes, return_inverse=True)
    drawn = np.random.default_rng(0).random(len(unordered))[place]
    splits = np.where(drawn < 0.1, TEST, np.where(drawn < 0.145, VALIDATION, TRAIN))
    return pairs.with_columns(split=pl.Series(splits, dtype=pl.UInt8))
