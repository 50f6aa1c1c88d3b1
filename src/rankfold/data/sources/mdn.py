"""Pages of the MDN web docs and their "see also" links.

``pages.tsv.zst`` has one line per page, ``number TAB address TAB title TAB beginning``;
``seealso.tsv`` has ``number TAB numbers of pages``.
"""

from pathlib import Path

from rankfold.data.read.reading import Reading
from rankfold.data.read.results import Documents
from rankfold.data.sources import tsv


def read(paths: list[Path], _reading: Reading) -> Documents:
    """Rows ``query`` and ``candidate``, addresses of pages, with their titles; see ``linked``."""
    names = ("number", "address", "title")
    pages, pairs = tsv.read_links(paths, "pages.tsv", "seealso.tsv", names=names)
    return tsv.linked(pairs, pages["address"], pages["title"])
