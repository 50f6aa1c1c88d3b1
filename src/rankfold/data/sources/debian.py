"""Debian packages: their dependencies, suggestions and tags; bundled.

``bundled/debian/ORIGIN.md`` describes the origin of the two tables.
"""

from pathlib import Path

import polars as pl

from rankfold.data.read.reading import Reading, scan_csv
from rankfold.data.read.results import Documents, TextTable
from rankfold.data.sources import tsv

FOLDER = Path(__file__).parents[1] / "bundled" / "debian"
PACKAGES = {
    "number": pl.Int64,
    "name": pl.String,
    "source": pl.String,
    "section": pl.String,
    "priority": pl.String,
    "summary": pl.String,
    "tags": pl.String,
}
_RELATIONS = {"from": pl.Int64, "to": pl.Int64, "kind": pl.String}
RECOMMENDS, SUGGESTS, ENHANCES = "r", "s", "e"  # the others: d depends, p pre-depends


def read_relations(_paths: list[Path], _reading: Reading) -> pl.LazyFrame:
    """Rows ``query`` and ``candidate``: a package and one it is related to in any way."""
    return _named(_table("relations", _RELATIONS))


def read_see_also(_paths: list[Path], _reading: Reading) -> pl.LazyFrame:
    """The same, but only packages that it recommends, suggests or enhances."""
    return _named(_see_also())


def read_see_also_texts(_paths: list[Path], _reading: Reading) -> Documents:
    """The same with names and short descriptions; see ``linked`` for the splits."""
    packages = _packages()
    pairs = _see_also().select("from", "to").unique().sort("from", "to").collect()
    return tsv.linked(pairs, packages["name"], packages["words"])


def read_tags(_paths: list[Path], _reading: Reading) -> pl.LazyFrame:
    """Rows ``query`` and ``candidate``: a package and one of its tags (``role::program``)."""
    tagged = _table("packages", PACKAGES).drop_nulls("tags")
    tags = pl.col("tags").str.split(", ")
    return tagged.select(query="name", candidate=tags).explode("candidate")


def read_tags_texts(paths: list[Path], reading: Reading) -> Documents:
    """The same with names and short descriptions; the words of a tag are its parts."""
    pairs = read_tags(paths, reading)
    packages, tags = _packages(), pairs.select(pl.col("candidate").unique().sort()).collect()
    tagged = packages.drop_nulls("tags")
    words = tags.to_series().str.replace_all("[:-]+", " ")
    tables = {
        "query": TextTable("packages", tagged["name"], tagged["words"]),
        "candidate": TextTable("tags", tags.to_series(), words),
    }
    return Documents(pairs, tables)


def _packages() -> pl.DataFrame:
    """All packages in order of number, with their ``words``."""
    words = pl.concat_str("name", "summary", separator=" ", ignore_nulls=True)
    return _table("packages", PACKAGES).with_columns(words=words).collect()


def _see_also() -> pl.LazyFrame:
    kinds = [RECOMMENDS, SUGGESTS, ENHANCES]
    return _table("relations", _RELATIONS).filter(pl.col("kind").is_in(kinds))


def _named(relations: pl.LazyFrame) -> pl.LazyFrame:
    """Pairs of names. Packages that are related in several ways are one pair."""
    names = _table("packages", PACKAGES).select("name").collect()["name"]  # in order of number
    pairs = relations.select("from", "to").unique(maintain_order=True)
    return tsv.named(pairs, names)


def _table(name: str, schema: dict[str, type[pl.DataType]]) -> pl.LazyFrame:
    return scan_csv(FOLDER / f"{name}.tsv.zst", schema, separator="\t")
