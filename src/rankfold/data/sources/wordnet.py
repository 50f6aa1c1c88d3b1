"""Synsets of WordNet and the pointers between them.

``synsets.tsv.zst`` has one line per synset, ``number TAB key TAB words TAB gloss``;
``pointers.tsv.zst`` has ``number TAB number TAB kind TAB kind``.
"""

from pathlib import Path

import polars as pl

from rankfold.data.read.documents import Documents
from rankfold.data.read.reading import Reading
from rankfold.data.sources import tsv

_SYNSETS = ("number", "key", "words", "gloss")
_POINTERS = ("from", "to")


def read(paths: list[Path], _reading: Reading) -> Documents:
    """Rows ``query`` and ``candidate``, keys of synsets, with their words and gloss.

    A pair and its inverse are in the same split; a tenth of them is test.
    """
    about, pointers = tsv.find(paths, "synsets.tsv", "pointers.tsv")
    synsets = tsv.read(about, _SYNSETS)
    tsv.check_rows(synsets, about.name)
    table = tsv.read(pointers, _POINTERS)
    ends = {
        name: tsv.numbers(table[name], len(synsets), pointers.name).explode() for name in _POINTERS
    }
    pairs = pl.DataFrame(ends).unique().filter(pl.col("from") != pl.col("to")).sort("from", "to")
    words = synsets.select(pl.concat_str("words", "gloss", separator=" ", ignore_nulls=True))
    return tsv.numbered(tsv.drawn_by_pair(pairs), synsets["key"], words.to_series())
