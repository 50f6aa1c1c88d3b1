"""Public data sets by name. To add one: one file, one line here, one test in its true format.

A reader gets its input files and returns rows ``query, candidate[, grade][, time]`` with time in
seconds, or such rows for each number of a split; ``Documents`` with texts; or ``RawRows`` of graded
rows.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import polars as pl

from rankfold.config import plugins
from rankfold.data.read.reading import Reading
from rankfold.data.read.results import Documents, RawRows
from rankfold.data.sources import (
    amazon,
    debian,
    keel,
    lightgcn,
    mdn,
    movielens,
    msd,
    netflix,
    retinamnist,
    steam,
    wikilinks,
    wordnet,
    yso,
)

Rows = pl.LazyFrame | Mapping[int, pl.LazyFrame] | Documents | RawRows


class Source(NamedTuple):
    """One public data set or format."""

    summary: str
    read: Callable[[list[Path], Reading], Rows]
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


_ADJACENCY, _WIKI_DUMPS = "train.txt and test.txt", "page, linktarget, pagelinks .sql.gz"

SOURCES: dict[str, Source] = {
    "amazon": Source("Amazon reviews, 2014 to 2023", amazon.read, "ratings CSV or reviews JSON"),
    "amazon-book": Source("Amazon books, LightGCN's split", lightgcn.read, _ADJACENCY),
    "amazon-electronics": Source(
        "Amazon reviews of electronics", amazon.read, "reviews_Electronics_5.json.gz or ratings"
    ),
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
    "gowalla": Source("Gowalla check-ins, LightGCN's split", lightgcn.read, _ADJACENCY),
    "keel": Source("graded rows of the KEEL repository", keel.read, ".dat files", graded=True),
    "mdn-seealso": _documents(
        "see-also links of the MDN web docs", mdn.read, "pages.tsv.zst and seealso.tsv"
    ),
    "ml-10m": Source("MovieLens 10M", movielens.read, "ratings.dat, its folder or ml-10m.zip"),
    "ml-20m": Source("MovieLens 20M", movielens.read, "ratings.csv, its folder or ml-20m.zip"),
    "ml-25m": Source("MovieLens 25M", movielens.read, "ratings.csv, its folder or ml-25m.zip"),
    "ml-32m": Source("MovieLens 32M", movielens.read, "ratings.csv, its folder or ml-32m.zip"),
    "movielens": Source("MovieLens ratings", movielens.read, "the ratings of any release"),
    "msd": Source("songs played, Echo Nest taste profiles", msd.read, "train_triplets.txt"),
    "netflix": Source(
        "ratings of the Netflix Prize", netflix.read, "combined_data_*.txt or training_set"
    ),
    "retinamnist": Source(
        "graded photographs of retinas (bundled)", retinamnist.read, "", graded=True
    ),
    "simplewiki": Source("Simple English Wikipedia links", wikilinks.read, _WIKI_DUMPS, links=True),
    "steam": Source("Steam reviews", steam.read, "steam_reviews.json.gz"),
    "steam-au": Source("Steam, Australia", steam.read_users, "australian_user_reviews.json.gz"),
    "wikilinks": Source("Wikipedia links", wikilinks.read, _WIKI_DUMPS, links=True),
    "wordnet": _documents(
        "pointers between synsets of WordNet", wordnet.read, "synsets.tsv.zst and pointers.tsv.zst"
    ),
    "yelp2018": Source("Yelp 2018, LightGCN's split", lightgcn.read, _ADJACENCY),
    "yso-finna-en": _documents(
        "subjects of library records", yso.read, "docs.tsv.zst and labels.tsv.zst", links=False
    ),
}
SOURCES |= plugins("rankfold.sources")
