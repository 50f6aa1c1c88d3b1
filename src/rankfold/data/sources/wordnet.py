"""Synsets of WordNet and the pointers between them.

``synsets.tsv.zst`` has one line per synset, ``number TAB key TAB words TAB gloss``;
``pointers.tsv.zst`` has ``number TAB number TAB kind TAB kind``.
"""

from pathlib import Path

import polars as pl

from rankfold.data.read.reading import Reading
from rankfold.data.read.results import Documents
from rankfold.data.sources import tsv


def read(paths: list[Path], _reading: Reading) -> Documents:
    """Rows ``query`` and ``candidate``, keys of synsets, with their words and gloss.

    A pair and its inverse are in the same split; a tenth of them is test.
    """
    names = ("number", "key", "words", "gloss")
    synsets, pairs = tsv.read_links(paths, "synsets.tsv", "pointers.tsv", names=names)
    pairs = pairs.unique().filter(pl.col("from") != pl.col("to")).sort("from", "to")
    words = synsets.select(pl.concat_str("words", "gloss", separator=" ", ignore_nulls=True))
    return tsv.numbered(tsv.drawn_by_pair(pairs), synsets["key"], words.to_series())
