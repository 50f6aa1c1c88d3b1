"""Ranked lists for many queries, or grades for many rows: files in, one file out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import torch

from rankfold import config, storage
from rankfold.data.build.column_profile import describe
from rankfold.data.options import TableOptions
from rankfold.data.read import in_memory
from rankfold.data.read.dialect import decoded
from rankfold.data.read.files import expand
from rankfold.data.read.queries import QueryColumns, QueryRows, read_queries
from rankfold.data.read.reading import Reading, spool_frames
from rankfold.data.read.tables import read_keys
from rankfold.data.read.values import concat
from rankfold.errors import UserError
from rankfold.index.exact import block_rows
from rankfold.models import probabilities
from rankfold.models import thresholds as decisions
from rankfold.models.grader import Grader, new_values
from rankfold.models.load import load
from rankfold.models.ranker import Ranker
from rankfold.models.ranking import best
from rankfold.models.search import NO_FILTER, Filter, ranks_by_text
from rankfold.notebook import shown
from rankfold.tasks.options import GradeOptions, RankOptions, build_own
from rankfold.types import Progress, Tabular, TopK

ROWS_SHOWN = 20  # in a notebook
BLOCK_BYTES = 2**28  # of results at a time


@dataclass(slots=True)
class Counts:
    """Counts of the queries so far."""

    queries: int = 0
    unknown: int = 0  # keys that the model does not know, left out
    without_words: int = 0  # texts without a known word, ranked by popularity
    left_out: int = 0  # rows that cannot be used


class Prediction(dict[str, Any], Tabular):
    """The counts of a prediction; as a table, its lists or grades."""

    def __init__(self, counts: Mapping[str, Any], table: pl.LazyFrame) -> None:
        super().__init__(counts)
        self._table = table

    def to_polars(self) -> pl.DataFrame:
        """A row per result of a query, or per graded row."""
        return self._table.collect()

    def _repr_html_(self) -> str:
        return str(self._table.head(ROWS_SHOWN).collect()._repr_html_())


@config.explicit(RankOptions, GradeOptions, TableOptions)
def predict(
    model: Ranker | Grader | str | Path,
    inputs: Any,
    out: str | Path | None = None,
    *,
    progress: Progress = shown,
    **options: Any,
) -> Prediction:
    """Rank or grade every row of files or a table; with ``out``, write a file.

    A model that ranks gives ``query, rank, candidate, score``. Rows are keys of queries or, for a
    model that ranks by text, texts; for a text, no seen pairs are hidden. A repeated key is ranked
    once. With ``min_probability`` there is also the probability of each result. Unknown queries
    are left out and counted; ``strict`` refuses them. A model that grades takes one file of rows
    with the columns that it was fitted on, and writes ``query, score, grade`` and the probability
    of each grade; ``rate`` says what its false-positive rate means, ``cautions`` what its cuts or
    the rows lack, and ``drift`` how each column differs from that of the fitted rows. Rows that
    cannot be used are left out; ``dropped`` says which.

    Args:
        model: a model or its folder.
        inputs: paths of tables, or for texts also of files of lines; or a polars, pandas or Arrow
            table.
        out: the file to write, by its suffix as Parquet, CSV or JSON lines; None: the result is in
            memory.
        progress: called after each block.
        options: see below. Some are for models that rank, others for models that grade.
    """
    model = model if isinstance(model, Ranker | Grader) else load(model)
    if out is not None:
        check_file(Path(out), inputs)
    names = [name for name in options if name in _names(TableOptions)]
    written = config.build(TableOptions, {name: options.pop(name) for name in names})
    with storage.scratch() as scratch:
        reading = Reading(scratch, progress=progress, dialect=written.dialect)
        if isinstance(model, Grader):
            sources = _in_utf8(_sources(inputs), written.encoding, scratch)
            graded = build_own(GradeOptions, RankOptions, options)
            done, table = _grade(model, sources, graded, reading)
        else:
            sources = _in_utf8(_as_files(inputs, scratch), written.encoding, scratch)
            ranked = build_own(RankOptions, GradeOptions, options)
            done, table = _rank(model, sources, ranked, reading)
        table = table.collect().lazy() if out is None else _write(table, Path(out))
    if reading.bad.counts:
        done["dropped"] = reading.bad.summary()
    return Prediction(done, table)


def check_file(out: Path, inputs: Any) -> None:
    """A UserError unless results can be written to ``out``, which is none of the inputs."""
    if out.is_dir():
        raise UserError(f"cannot write {out}: it is a folder", hint="name a file")
    storage.check_destination(out)
    if out.suffix not in _WRITERS:
        suffixes = ", ".join(_WRITERS)
        hint = f"use {out.with_suffix('.parquet').name}"
        raise UserError(f"{out} must end in one of {suffixes}", hint=hint)
    files = [source for source in _sources(inputs) if isinstance(source, str | Path)]
    if out.exists() and any(map(out.samefile, expand(files))):
        raise UserError(f"{out} is the input", hint="name another file")


def _sources(inputs: Any) -> Sequence[Any]:
    """Several inputs are a list; a table in memory is one input."""
    return inputs if isinstance(inputs, list | tuple) else [inputs]


def _in_utf8(sources: Sequence[Any], encoding: str | None, scratch: Path) -> Sequence[Any]:
    """The sources, files in another encoding copied; tables in memory stay as they are."""
    if encoding is None or not all(isinstance(source, str | Path) for source in sources):
        return sources
    return [decoded(file, encoding, scratch) for file in expand(sources)]


def _as_files(inputs: Any, scratch: Path) -> Sequence[str | Path]:
    """Paths; a table in memory becomes a file."""
    sources = _sources(inputs)
    if all(isinstance(source, str | Path) for source in sources):
        return sources
    path = scratch / "table.parquet"
    (table,) = sources if len(sources) == 1 else [inputs]
    in_memory.to_frame(table).sink_parquet(path)
    return [path]


def _names(kind: type[config.Settings]) -> list[str]:
    return [one.name for one in fields(kind)]


def _grade(
    grader: Grader,
    sources: Sequence[Any],
    options: GradeOptions,
    reading: Reading,
) -> tuple[dict[str, Any], pl.LazyFrame]:
    """Counts, and the scores and grades of rows."""
    grader.cuts(options.fpr, options.confidence)  # an error comes before the rows are read
    if len(sources) != 1:
        raise UserError(
            f"a model that grades takes one input, got {len(sources)}",
            hint="grade them one by one, or quote a pattern: 'images/*.png'",
        )
    new = grader.read(sources[0], key_column=options.query_column, reading=reading)
    left_out = _left_out(reading, strict=options.strict)
    reading.progress("grading", 0.0)
    graded = grader.frame(new, options.fpr, options.confidence, explain=options.explain)
    rate = options.fpr, options.confidence
    shifts = grader.shifts(new.rows)
    cautions = grader.cautions(*rate) + new_values(new.unknown, len(graded)) + describe(shifts)
    promise = {"fpr": options.fpr, "confidence": options.confidence, "means": grader.promise(*rate)}
    counts = {"queries": len(graded), "left_out": left_out, "rate": promise}
    counts["drift"] = [shift.to_json() for shift in shifts]
    return counts | ({"cautions": cautions} if cautions else {}), graded.lazy()


def _rank(
    ranker: Ranker, sources: Sequence[str | Path], options: RankOptions, reading: Reading
) -> tuple[dict[str, Any], pl.LazyFrame]:
    """Counts, and the lists of queries."""
    by_text = ranks_by_text(ranker.model)
    if options.text_column is not None and not by_text:
        hint = "leave --text-column out, and give the keys of queries"
        raise UserError(f"{ranker.model.method} does not rank by text", hint=hint)
    if options.with_text and ranker.candidates.texts is None:
        hint = "leave --with-text out"
        raise UserError("the model has no texts of candidates to write", hint=hint)
    files, columns = expand(sources), QueryColumns(options.query_column, options.text_column)
    if by_text:
        inputs = read_queries(files, columns, reading)
    else:
        inputs = QueryRows(concat([read_keys(f, columns.key, reading) for f in files]), None)
    counts = Counts(left_out=_left_out(reading, strict=options.strict))
    keys = ranker.queries.keys if inputs.texts is None else inputs.keys
    rank = _rank_keys if inputs.texts is None else _rank_texts
    lists = rank(ranker, inputs, options, counts, reading.progress)
    text: dict[str, pl.DataType] = {"text": pl.String()} if options.with_text else {}
    if options.min_probability is not None:
        text = {"probability": pl.Float32(), **text}
        ranker.probabilities([])  # an error comes before the search
    if options.thresholds is not None:
        ranker.searcher.thresholds(options.thresholds)
    schema = {"query": keys.dtype, "rank": pl.Int32(), "candidate": ranker.candidates.keys.dtype}
    schema |= {"score": pl.Float32(), **text}
    table = spool_frames(lists, schema, reading)
    return asdict(counts), table


def _left_out(reading: Reading, *, strict: bool) -> int:
    """How many rows cannot be used; ``strict``: a UserError for the first one."""
    n = reading.bad.total
    if strict and n:
        hint = "correct them, or leave --strict out to skip them"
        raise UserError(f"bad rows: {'; '.join(reading.bad.describe())}", hint=hint)
    return n


def _rank_keys(
    ranker: Ranker, inputs: QueryRows, options: RankOptions, counts: Counts, progress: Progress
) -> Iterator[pl.DataFrame]:
    """The lists of the distinct keys, in the order of their first appearance, block by block."""
    keys = inputs.keys.drop_nulls().unique(maintain_order=True)
    if len(keys) == 0:
        raise UserError("the input has no queries", hint="a table needs a row per query")
    rows = ranker.queries.find(keys)
    unknown = rows < 0
    if options.strict and bool(unknown.any()):
        raise ranker.queries.unknown(keys[int(unknown.nonzero()[0])], "query")
    if bool(unknown.all()):
        by_text = ", or the column of texts with --text-column" if ranker.texts is not None else ""
        raise UserError(
            f"the model knows none of the {len(keys):,} queries",
            hint=f"name the column of keys with --query-column{by_text}",
        )
    counts.unknown, rows = int(unknown.sum()), rows[~unknown]
    filter = _filter(ranker, options)
    for block in rows.split(_block_rows(ranker, options)):
        seen = options.include_seen
        top = best(ranker, "queries", block, options.k, filter=filter, include_seen=seen)
        if ranker.texts is not None:
            counts.without_words += int((ranker.texts.counts()[block] == 0).sum())
        counts.queries += len(block)
        known = None if ranker.texts is None else ranker.texts.counts()[block] > 0
        yield _frame(ranker, ranker.queries.take(block), top, options, known)
        progress("ranking", counts.queries / len(rows))


def _rank_texts(
    ranker: Ranker, inputs: QueryRows, options: RankOptions, counts: Counts, progress: Progress
) -> Iterator[pl.DataFrame]:
    """The lists of texts, block by block."""
    total = len(inputs.keys) - inputs.keys.null_count()
    if total == 0:
        raise UserError("the input has no texts", hint="write one text per row or line")
    for keys, texts in inputs.blocks(_block_rows(ranker, options)):
        tokens = ranker.tokens(texts)
        top = best(ranker, "text", tokens, options.k, filter=_filter(ranker, options))
        counts.without_words += int((tokens.counts() == 0).sum())
        counts.queries += len(keys)
        yield _frame(ranker, keys, top, options, tokens.counts() > 0)
        progress("ranking", counts.queries / total)


def _filter(ranker: Ranker, options: RankOptions) -> Filter:
    where = options.where
    return NO_FILTER if where is None else Filter(allow=ranker.conditions.rows(where))


def _block_rows(ranker: Ranker, options: RankOptions) -> int:
    return block_rows(min(options.k, len(ranker.candidates)), BLOCK_BYTES)


def _frame(
    ranker: Ranker,
    keys: pl.Series,
    top: TopK,
    options: RankOptions,
    known: torch.Tensor | None,
) -> pl.DataFrame:
    """One result per row; ``known`` [B] says which texts have a known word."""
    if options.thresholds is not None:
        top = decisions.passing(top, ranker.searcher.thresholds(options.thresholds), known)
    real, chances = top.ids >= 0, None
    if options.min_probability is not None:
        chances = probabilities.of_lists(ranker.model, top, ranker.seen, known)
        real &= chances >= options.min_probability
    width, ids = top.ids.shape[1], top.ids[real]
    rows = torch.arange(len(keys))[:, None].expand_as(top.ids)[real]
    columns = {
        "query": keys.gather(rows.numpy()),
        "rank": pl.Series(torch.arange(1, width + 1).expand_as(real)[real].numpy(), dtype=pl.Int32),
        "candidate": ranker.candidates.take(ids),
        "score": pl.Series(top.scores[real].numpy(), dtype=pl.Float32),
    }
    if chances is not None:
        columns["probability"] = pl.Series(chances[real].numpy(), dtype=pl.Float32)
    if options.with_text:
        assert ranker.candidates.texts is not None
        columns["text"] = ranker.candidates.texts.gather(ids.numpy())
    return pl.DataFrame(columns)


def _write(table: pl.LazyFrame, out: Path) -> pl.LazyFrame:
    """Write the table to ``out``, which appears when complete, and read it from there."""
    write, read = _WRITERS[out.suffix]
    with storage.replacing(out) as unfinished:
        write(table, unfinished)
    return read(out)


_WRITERS: dict[str, tuple[Callable[..., Any], Callable[..., pl.LazyFrame]]] = {
    ".parquet": (pl.LazyFrame.sink_parquet, partial(pl.scan_parquet, glob=False)),
    ".csv": (pl.LazyFrame.sink_csv, partial(pl.scan_csv, glob=False)),
    ".jsonl": (pl.LazyFrame.sink_ndjson, pl.scan_ndjson),
    ".ndjson": (pl.LazyFrame.sink_ndjson, pl.scan_ndjson),
}
