"""Packages of Debian and what each depends on, suggests or is tagged with; bundled.

``bundled/debian/ORIGIN.md`` says where the two tables come from.
"""

from pathlib import Path

import polars as pl

from rankfold.data.reading import Reading

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
RELATIONS = {"from": pl.Int64, "to": pl.Int64, "kind": pl.String}
RECOMMENDS, SUGGESTS, ENHANCES = "r", "s", "e"  # the others: d depends, p pre-depends


def read_relations(_paths: list[Path], _reading: Reading) -> pl.LazyFrame:
    """Rows ``query`` and ``candidate``: a package and one that it is related to in any way."""
    return _named(_table("relations", RELATIONS))


def read_see_also(_paths: list[Path], _reading: Reading) -> pl.LazyFrame:
    """The same for packages that it recommends, suggests or enhances only."""
    relations = _table("relations", RELATIONS)
    return _named(relations.filter(pl.col("kind").is_in([RECOMMENDS, SUGGESTS, ENHANCES])))


def read_tags(_paths: list[Path], _reading: Reading) -> pl.LazyFrame:
    """Rows ``query`` and ``candidate``: a package and one of its tags, say ``role::program``."""
    tagged = _table("packages", PACKAGES).drop_nulls("tags")
    tags = pl.col("tags").str.split(", ")
    return tagged.select(query="name", candidate=tags).explode("candidate")


def _named(relations: pl.LazyFrame) -> pl.LazyFrame:
    """Names for numbers; packages may be related in several ways, but are a pair once."""
    names = _table("packages", PACKAGES).select("name").collect()["name"]  # in order of number
    pairs = relations.select("from", "to").unique(maintain_order=True)
    return pairs.select(
        query=pl.lit(names).gather(pl.col("from")), candidate=pl.lit(names).gather(pl.col("to"))
    )


def _table(name: str, schema: dict[str, type[pl.DataType]]) -> pl.LazyFrame:
    return pl.scan_csv(
        FOLDER / f"{name}.tsv.zst",
        has_header=False,
        separator="\t",
        schema=schema,
        quote_char=None,
        glob=False,
    )
