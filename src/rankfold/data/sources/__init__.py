"""Public data sets by name. To add one: one file, one line here, one test in its true format.

A reader gets its input files and returns rows ``query, candidate[, grade][, time]`` with time in
seconds; ``Documents`` with texts; or ``RawRows`` of graded rows.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import polars as pl

from rankfold.data.read.documents import Documents
from rankfold.data.read.reading import RawRows, Reading
from rankfold.data.sources import (
    amazon,
    debian,
    keel,
    mdn,
    movielens,
    retinamnist,
    steam,
    wikilinks,
    wordnet,
    yso,
)


class Source(NamedTuple):
    """One public data set or format."""

    summary: str
    read: Callable[[list[Path], Reading], pl.LazyFrame | Documents | RawRows]
    inputs: str  # the input files; empty for bundled data
    links: bool = False  # from things of one kind to others: none is its own candidate
    graded: bool = False  # the rows are graded
    read_texts: Callable[[list[Path], Reading], Documents] | None = None  # for --format texts


def _documents(
    summary: str,
    read: Callable[[list[Path], Reading], Documents],
    inputs: str,
    *,
    links: bool = True,
) -> Source:
    """A source that always has texts."""
    return Source(summary, read, inputs, links, read_texts=read)


SOURCES: dict[str, Source] = {
    "amazon": Source("Amazon reviews, 2014 to 2023", amazon.read, "ratings CSV or reviews JSON"),
    "debian": Source(
        "relations of Debian packages (bundled)", debian.read_relations, "", links=True
    ),
    "debian-seealso": Source(
        "packages that Debian packages suggest (bundled)",
        debian.read_see_also,
        "",
        links=True,
        read_texts=debian.read_see_also_texts,
    ),
    "debian-tags": Source(
        "tags of Debian packages (bundled)", debian.read_tags, "", read_texts=debian.read_tags_texts
    ),
    "fars": Source(
        "severity of injuries in accidents", keel.read_fars, "fars.dat of KEEL", graded=True
    ),
    "keel": Source("graded rows of the KEEL repository", keel.read, ".dat files", graded=True),
    "mdn-seealso": _documents(
        "see-also links of the MDN web docs", mdn.read, "pages.tsv.zst and seealso.tsv"
    ),
    "movielens": Source("MovieLens ratings", movielens.read, "the ratings of any release"),
    "retinamnist": Source(
        "graded photographs of retinas (bundled)", retinamnist.read, "", graded=True
    ),
    "steam": Source("Steam reviews", steam.read, "steam_reviews.json.gz"),
    "steam-au": Source("Steam, Australia", steam.read_users, "australian_user_reviews.json.gz"),
    "wikilinks": Source(
        "Wikipedia links", wikilinks.read, "page, linktarget, pagelinks .sql.gz", links=True
    ),
    "wordnet": _documents(
        "pointers between synsets of WordNet", wordnet.read, "synsets.tsv.zst and pointers.tsv.zst"
    ),
    "yso-finna-en": _documents(
        "subjects of library records", yso.read, "docs.tsv.zst and labels.tsv.zst", links=False
    ),
}
