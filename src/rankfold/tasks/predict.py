"""Ranked lists for many queries, or grades for many rows: files in, file out."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
import torch

from rankfold import config, storage
from rankfold.data.read.files import expand
from rankfold.data.read.queries import QueryColumns, QueryRows, read_queries
from rankfold.data.read.reading import BadRows, Reading, spool_frames
from rankfold.data.read.tables import read_keys
from rankfold.errors import UserError
from rankfold.index.exact import block_rows
from rankfold.metrics.graded import check_fpr
from rankfold.models.grader import USUAL_FPR, Grader, new_values
from rankfold.models.ranker import Ranker
from rankfold.models.search import takes_texts
from rankfold.types import Progress, TopK, silent

T = TypeVar("T")
BLOCK_BYTES = 2**28  # of results at a time
FLAGS = {"k": "-k", "text": "--text-column"}  # options that are not named as on the command line


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The options of ``predict`` for a model that ranks. Columns are guessed where None."""

    k: int = 10
    query: str | None = None  # the column of keys; "none": count the rows of texts
    text: str | None = None  # the column of texts, for a model that ranks by text
    include_seen: bool = False  # also what a known query chose before
    strict: bool = False  # refuse unknown queries and bad rows
    with_text: bool = False  # write the candidates' texts beside their keys


@dataclass(frozen=True, slots=True, kw_only=True)
class GradedPrediction:
    """The options of ``predict`` for a model of graded rows."""

    fpr: float = USUAL_FPR  # the false-positive rate that the cuts between grades are for
    query: str | None = None  # the column to name rows by; None: they are numbered
    strict: bool = False  # refuse bad rows


@dataclass(slots=True)
class Done:
    """What was ranked so far."""

    queries: int = 0
    unknown: int = 0  # keys that the model does not know, left out
    without_words: int = 0  # texts that the model knows no word of, ranked by popularity
    left_out: int = 0  # rows that cannot be used


def predict(
    ranker: Ranker | Grader,
    sources: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    progress: Progress = silent,
    **options: Any,
) -> dict[str, Any]:
    """Rank or grade every row of some files; write a Parquet file, and tell how many rows it was.

    A model that ranks writes ``query, rank, candidate, score``. Rows are keys of queries or, for a
    model that ranks by text, texts, from which nothing is left out that some query has seen. A key
    is ranked once, however often it is named. Queries that the model does not know are left out and
    counted; ``strict`` refuses them. A model of graded rows takes one file of rows with the columns
    that it was fitted on, and writes ``query, score, grade``; ``cautions`` say what its cuts or the
    rows may lack. Rows that cannot be used are left out and told of in ``dropped``.

    Args:
        ranker: a model.
        sources: tables, or for texts also files of lines.
        out: the file to write.
        progress: told after each block.
        options: the fields of ``Prediction``, or of ``GradedPrediction``.
    """
    files, out = [sources] if isinstance(sources, str | Path) else list(sources), Path(out)
    _check_out(out)
    if isinstance(ranker, Grader):
        return _grade(ranker, files, out, _options(GradedPrediction, options), progress)
    return _rank(ranker, files, out, _options(Prediction, options), progress)


def _options(kind: type[T], options: dict[str, Any]) -> T:
    """The options of a model; those of the other kind of model are refused in words."""
    rows = kind is GradedPrediction
    other = Prediction if rows else GradedPrediction
    for name in options:
        if name in other.__slots__ and name not in kind.__slots__:  # type: ignore[attr-defined]
            does = "grades rows: it has no lists" if rows else "ranks candidates: it has no grades"
            if name == "text":
                does = "grades rows by their columns: it takes no texts"
            flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
            raise UserError(f"{name} was given, but the model {does}", hint=f"leave {flag} out")
    return config.build(kind, options)


def _grade(
    grader: Grader,
    sources: Sequence[str | Path],
    out: Path,
    how: GradedPrediction,
    progress: Progress,
) -> dict[str, Any]:
    """Write the scores and grades of rows."""
    check_fpr(how.fpr)
    grader.cuts(how.fpr)  # refuses before it reads
    if len(sources) != 1:
        raise UserError(
            f"a model of graded rows takes one input, not {len(sources)}",
            hint="grade one by one, or name them by a pattern in quotes: 'images/*.png'",
        )
    with tempfile.TemporaryDirectory(prefix="rankfold-") as scratch:
        reading = Reading(Path(scratch), progress=progress)
        new = grader.read(sources[0], key=how.query, reading=reading)
        left_out = _left_out(reading, strict=how.strict)
    progress("grading", 0.0)
    found = grader.frame(new, how.fpr)
    _write(found.lazy(), out)
    cautions = grader.cautions(how.fpr) + new_values(new.unknown, len(found))
    told = {"cautions": cautions} if cautions else {}
    return {"queries": len(found), "left_out": left_out} | told | _told(reading.bad)


def _rank(
    ranker: Ranker,
    sources: Sequence[str | Path],
    out: Path,
    how: Prediction,
    progress: Progress,
) -> dict[str, Any]:
    """Write the lists of queries."""
    _check(ranker, how)
    done = Done()
    with tempfile.TemporaryDirectory(prefix="rankfold-") as scratch:
        reading = Reading(Path(scratch), progress=progress)
        files = expand(sources)
        if takes_texts(ranker.model):
            asked = read_queries(files, QueryColumns(how.query, how.text), reading)
        else:
            asked = QueryRows(_keys(files, how.query, reading), None)
        done.left_out = _left_out(reading, strict=how.strict)
        keys = ranker.queries.keys if asked.texts is None else asked.keys
        rank = _rank_keys if asked.texts is None else _rank_texts
        lists = rank(ranker, asked, how, done, progress)
        _write(spool_frames(lists, _schema(ranker, keys.dtype, how), reading), out)
    return {name: getattr(done, name) for name in Done.__slots__} | _told(reading.bad)


def _left_out(reading: Reading, *, strict: bool) -> int:
    """How many rows cannot be used; a UserError where there may be none."""
    n = reading.bad.total
    if strict and n:
        hint = "correct them, or leave --strict out to go on without them"
        raise UserError(f"found {'; '.join(reading.bad.describe())}", hint=hint)
    return n


def _told(bad: BadRows) -> dict[str, Any]:
    return {"dropped": bad.summary()} if bad.counts else {}


def _check_out(out: Path) -> None:
    if out.is_dir():
        raise UserError(f"cannot write {out}, a folder", hint="name a file")
    storage.check_destination(out)
    if out.suffix != ".parquet":
        raise UserError(f"cannot write {out}", hint=f"lists are Parquet: {out.stem}.parquet")


def _check(ranker: Ranker, how: Prediction) -> None:
    if how.k < 1:
        raise UserError(f"k is {how.k}", hint="ask for at least 1 result")
    if how.text is not None and not takes_texts(ranker.model):
        hint = "leave --text-column out, and name queries by their keys"
        raise UserError(f"{ranker.model.method} does not rank by text", hint=hint)
    if how.with_text and ranker.candidates.texts is None:
        hint = "leave --with-text out"
        raise UserError("the model has no texts of candidates to write", hint=hint)


def _schema(ranker: Ranker, key: pl.DataType, how: Prediction) -> dict[str, Any]:
    schema = {
        "query": key,
        "rank": pl.Int32(),
        "candidate": ranker.candidates.keys.dtype,
        "score": pl.Float32(),
    }
    return {**schema, "text": pl.String()} if how.with_text else schema


def _keys(files: Sequence[Path], column: str | None, reading: Reading) -> pl.Series:
    """The query keys of all files, in their order."""
    parts = [read_keys(path, column, reading) for path in files]
    if len({part.dtype for part in parts}) > 1:
        parts = [part.cast(pl.String) for part in parts]
    return pl.concat(parts)


def _rank_keys(
    ranker: Ranker, asked: QueryRows, how: Prediction, done: Done, progress: Progress
) -> Iterator[pl.DataFrame]:
    """The lists of the distinct keys, in the order of their first appearance, block by block."""
    keys = asked.keys.drop_nulls().unique(maintain_order=True)
    if len(keys) == 0:
        raise UserError("the input has no queries", hint="a table needs a row per query")
    rows = ranker.queries.find(keys)
    unknown = rows < 0
    if how.strict and bool(unknown.any()):
        ranker.queries.rows(keys.filter(pl.Series(unknown.numpy())).head(1).to_list())
    if bool(unknown.all()):
        by_text = " or, for texts, with --text-column" if takes_texts(ranker.model) else ""
        raise UserError(
            f"the model knows none of the {len(keys):,} queries",
            hint=f"is it the right column? name it with --query-column{by_text}",
        )
    done.unknown, rows = int(unknown.sum()), rows[~unknown]
    for block in rows.split(_step(ranker, how)):
        hidden = ranker.hidden(block, include_seen=how.include_seen)
        found = ranker.top_k(block, how.k, hidden)
        if ranker.texts is not None:
            done.without_words += int((ranker.texts.counts()[block] == 0).sum())
        done.queries += len(block)
        yield _listed(ranker, ranker.queries.take(block), found, how)
        progress("ranking", done.queries / len(rows))


def _rank_texts(
    ranker: Ranker, asked: QueryRows, how: Prediction, done: Done, progress: Progress
) -> Iterator[pl.DataFrame]:
    """The lists of texts, block by block."""
    total = len(asked.keys) - asked.keys.null_count()
    if total == 0:
        raise UserError("the input has no texts", hint="write one per row or line")
    for keys, texts in asked.blocks(_step(ranker, how)):
        tokens = ranker.tokens(texts)
        found = ranker.searcher.of_texts(tokens, how.k)
        done.without_words += int((tokens.counts() == 0).sum())
        done.queries += len(keys)
        yield _listed(ranker, keys, found, how)
        progress("ranking", done.queries / total)


def _step(ranker: Ranker, how: Prediction) -> int:
    return block_rows(min(how.k, len(ranker.candidates)), BLOCK_BYTES)


def _listed(ranker: Ranker, keys: pl.Series, found: TopK, how: Prediction) -> pl.DataFrame:
    """One result per line."""
    real = found.ids >= 0
    width, ids = found.ids.shape[1], found.ids[real]
    rows = torch.arange(len(keys))[:, None].expand_as(found.ids)[real]
    columns = {
        "query": keys.gather(rows.numpy()),
        "rank": pl.Series(torch.arange(1, width + 1).expand_as(real)[real].numpy(), dtype=pl.Int32),
        "candidate": ranker.candidates.take(ids),
        "score": pl.Series(found.scores[real].numpy(), dtype=pl.Float32),
    }
    if how.with_text:
        assert ranker.candidates.texts is not None
        columns["text"] = ranker.candidates.texts.gather(ids.numpy())
    return pl.DataFrame(columns)


def _write(table: pl.LazyFrame, out: Path) -> None:
    """Put the table at ``out`` at once."""
    partial = out.with_name(f".writing-{out.name}")
    try:
        table.sink_parquet(partial)
        partial.replace(out)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UserError(f"cannot write {out}: {error}", hint="nothing was replaced") from error
    finally:
        partial.unlink(missing_ok=True)
