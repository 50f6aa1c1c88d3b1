"""Links between the articles of a Wikipedia, from its page, linktarget and pagelinks SQL dumps.

A link to a redirect counts as a link to its final target. These dumps do not name the target, but
it is the one link on the redirect's page. A redirect with several links or none, or one that leads
back to itself, has no target, and links to it are dropped.

A dump is read as CSV, a few megabytes at a time: see ``_csv``.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import chain, takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from rankfold.data.read.files import base_suffix, open_binary
from rankfold.data.read.reading import Reading, spool_frames
from rankfold.errors import UserError

_TABLES: dict[str, dict[str, type[pl.DataType]]] = {
    "page": {
        "page_id": pl.Int64,
        "page_namespace": pl.Int64,
        "page_title": pl.String,
        "page_is_redirect": pl.Int64,
    },
    "linktarget": {"lt_id": pl.Int64, "lt_namespace": pl.Int64, "lt_title": pl.String},
    "pagelinks": {"pl_from": pl.Int64, "pl_target_id": pl.Int64},
}
_ARTICLES = 0  # the namespace
BLOCK = 2**23  # bytes


class Dump(NamedTuple):
    """An SQL dump of one table."""

    path: Path
    table: str
    columns: list[str]  # in the order of the CREATE TABLE statement


def read(paths: list[Path], reading: Reading) -> pl.LazyFrame:
    """Rows ``query`` (title of the linking article) and ``candidate`` (title of the linked one)."""
    dumps = _find(paths)
    tables = {name: _spool(dumps[name], reading) for name in _TABLES}
    pages = _pages(tables["page"])
    links = _links(tables["linktarget"], tables["pagelinks"], pages)
    ends = _ends(pages, links)
    queries = pages.lazy().filter(~pl.col("is_redirect")).select(query="title", **{"from": "row"})
    candidates = pages.lazy().select(candidate="title", to="row")
    return (
        links.join(ends.lazy(), on="to")
        .select("from", to="end")
        .filter(pl.col("from") != pl.col("to"))
        .unique()
        .sort("from", "to")  # a fixed order
        .join(queries, on="from", maintain_order="left")
        .join(candidates, on="to", maintain_order="left")
        .select("query", "candidate")
    )


def _pages(table: pl.LazyFrame) -> pl.DataFrame:
    """The articles and the redirects to them: ``row``, ``page_id``, ``title``, ``is_redirect``."""
    pages = table.filter(pl.col("page_namespace") == _ARTICLES).select(
        "page_id", title=_title("page_title"), is_redirect=pl.col("page_is_redirect") == 1
    )
    return pages.collect().with_row_index("row")


def _links(targets: pl.LazyFrame, links: pl.LazyFrame, pages: pl.DataFrame) -> pl.LazyFrame:
    """Rows ``from`` and ``to`` of pages; links to missing pages are dropped."""
    of_title = pages.lazy().select("title", to="row")
    of_id = pages.lazy().select("page_id", **{"from": "row"})
    of_target = (
        targets.filter(pl.col("lt_namespace") == _ARTICLES)
        .select("lt_id", title=_title("lt_title"))
        .join(of_title, on="title")
        .select("lt_id", "to")
    )
    return (
        links.join(of_id, left_on="pl_from", right_on="page_id")
        .join(of_target, left_on="pl_target_id", right_on="lt_id")
        .select("from", "to")
    )


def _ends(pages: pl.DataFrame, links: pl.LazyFrame) -> pl.DataFrame:
    """The final target ``end`` of a link to page ``to``, if there is one."""
    nowhere = len(pages)
    is_redirect = np.append(pages["is_redirect"].to_numpy(), False)
    redirects = pages.lazy().filter("is_redirect").select("row")
    only = (
        links.join(redirects, left_on="from", right_on="row", how="semi")
        .filter(pl.len().over("from") == 1)
        .collect()
    )
    end = np.where(is_redirect, nowhere, np.arange(nowhere + 1))
    end[only["from"].to_numpy()] = only["to"].to_numpy()
    for _ in range(nowhere.bit_length()):  # each round doubles the length of the chains followed
        end = end[end]
    leads = ~is_redirect[end] & (end != nowhere)  # a chain that still ends at a redirect is a cycle
    ends = pl.DataFrame({"to": np.flatnonzero(leads), "end": end[leads]})
    return ends.cast(pages.schema["row"])


# ---------------------------------------------------------------------------------- finding dumps


def _find(paths: Sequence[Path]) -> dict[str, Dump]:
    """The dump of each table, identified by its CREATE TABLE statement, not by its name."""
    dumps: dict[str, Dump] = {}
    for path in chain.from_iterable(map(_files, paths)):
        dump = _describe(path)
        if dump is None or dump.table not in _TABLES:
            continue
        if dump.table in dumps:
            raise UserError(
                f"{dumps[dump.table].path} and {path} both hold the table {dump.table}",
                hint="name the three files of one date",
            )
        dumps[dump.table] = dump
    missing = [name for name in _TABLES if name not in dumps]
    if missing:
        raise UserError(
            f"there is no SQL dump of the table {' nor of '.join(missing)}",
            hint="give the three files simplewiki-DATE-page.sql.gz, -linktarget.sql.gz and "
            "-pagelinks.sql.gz, or the folder that holds them",
        )
    return dumps


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.iterdir() if base_suffix(file) == ".sql")


def _describe(path: Path) -> Dump | None:
    """The table of a dump and its columns; None for a file that creates no table."""
    with open_binary(path) as file:
        for line in file:
            if line.startswith(b"INSERT INTO"):
                return None
            if create := re.match(rb"CREATE TABLE `(\w+)`", line):
                body = takewhile(lambda line: not line.startswith(b")"), file)
                names = [re.match(rb"\s*`(\w+)`", line) for line in body]
                return Dump(path, create[1].decode(), [name[1].decode() for name in names if name])
    return None


# ---------------------------------------------------------------------------------- reading dumps


def _spool(dump: Dump, reading: Reading) -> pl.LazyFrame:
    """The columns of ``_TABLES`` that a dump holds, as temporary Parquet files."""
    schema = _TABLES[dump.table]
    for name in schema:
        if name not in dump.columns:
            raise UserError(
                f"{dump.path} has no column {name!r}",
                hint=f"it has {', '.join(dump.columns)}; use a newer dump",
            )
    reading.progress(f"reading {dump.path.name}", list(_TABLES).index(dump.table) / len(_TABLES))
    return spool_frames((_parse(block, dump) for block in _blocks(dump)), schema, reading)


def _blocks(dump: Dump) -> Iterator[bytes]:
    """The rows of all INSERT statements, in blocks without the outermost parentheses.

    A line holds a statement or, from newer servers, one row; both end in ``),`` or ``);``.
    """
    insert = f"INSERT INTO `{dump.table}` VALUES".encode()
    rows: list[bytes] = []
    size = 0
    with open_binary(dump.path) as file:
        for line in file:
            values = line.removeprefix(insert).strip()
            if not values.startswith(b"("):
                continue
            if not values.endswith((b"),", b");")):
                raise _damaged(dump)
            rows.append(values[1:-2])
            size += len(values)
            if size >= BLOCK:
                yield b"\n".join(rows)
                rows, size = [], 0
    if rows:
        yield b"\n".join(rows)


def _parse(block: bytes, dump: Dump) -> pl.DataFrame:
    schema = _TABLES[dump.table]
    rows = pl.scan_csv(
        _csv(block),
        has_header=False,
        quote_char="'",
        schema={name: schema.get(name, pl.String) for name in dump.columns},
        encoding="utf8-lossy",
    )
    try:
        return rows.select(list(schema)).collect()
    except pl.exceptions.PolarsError:
        raise _damaged(dump) from None


def _csv(block: bytes) -> bytes:
    r"""SQL values as CSV: one row per line, quotes doubled instead of escaped.

    Bytes are replaced everywhere, strings included, because ``_title`` can undo it there: a dump
    writes a line feed in a string as ``\n`` and titles have no control characters, so a line feed
    in a string was ``),(`` and a byte 1 was a backslash.
    """
    csv = block.replace(b"),(", b"\n")
    if b"\\" in csv:
        csv = csv.replace(b"\\\\", b"\x01").replace(b"\\'", b"''").replace(b'\\"', b'"')
    return csv


def _title(column: str) -> pl.Expr:
    """A title as it is displayed."""
    replaced = ["\n", "\x01", "_"], ["),(", "\\", " "]
    return pl.col(column).str.replace_many(*replaced)


def _damaged(dump: Dump) -> UserError:
    return UserError(
        f"{dump.path} has a row that does not fit its table {dump.table}",
        hint="the file may be truncated; download it again",
    )
