"""Pages of the MDN web docs and their "see also" links.

``pages.tsv.zst`` has one line per page, ``number TAB address TAB title TAB beginning``;
``seealso.tsv`` has ``number TAB numbers of pages``.
"""

from pathlib import Path

import polars as pl

from rankfold.data.read.documents import Documents
from rankfold.data.read.reading import Reading
from rankfold.data.sources import tsv

PAGES = ("number", "address", "title")
LINKS = ("from", "to")


def read(paths: list[Path], _reading: Reading) -> Documents:
    """Rows ``query`` and ``candidate``, addresses of pages, with their titles; see ``linked``."""
    about, links = tsv.find(paths, "pages.tsv", "seealso.tsv")
    pages = tsv.read(about, PAGES)
    tsv.check_rows(pages, about.name)
    table = tsv.read(links, LINKS)
    ends = {name: tsv.numbers(table[name], len(pages), links.name) for name in LINKS}
    pairs = pl.DataFrame(ends).explode("from").explode("to").drop_nulls()
    return tsv.linked(pairs, pages["address"], pages["title"])
