"""The plan of ``prepare``: small inputs are prepared in memory, of others only the head is read."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from rankfold import config, storage
from rankfold.data.build.grades import GradedRows
from rankfold.data.inputs import Rows, check_tables, read_inputs, read_tables
from rankfold.data.options import Preparation
from rankfold.data.prepare import check_replaceable, prepare
from rankfold.data.read.reading import Reading, Taken
from rankfold.data.read.results import Documents
from rankfold.data.read.values import count_rows
from rankfold.tasks.dry_run import outline
from rankfold.tasks.dry_run.heads import Heads
from rankfold.types import SPLITS, Dataset, Progress

HEAD_BYTES = 2**23  # of a text file
HEAD_ROWS = 100_000  # of a Parquet file
_BYTES_A_PAIR = 40
_INPUTS = ("train", "validation", "test")
_TABLES = ("query_features", "candidate_features", "query_texts", "candidate_texts")


def outline_prepare(
    *inputs: Any,
    out: str | Path,
    overwrite: bool = False,
    progress: Progress,
    echo: Callable[[Taken], None],
    **options: Any,
) -> dict[str, Any]:
    """Check a preparation and outline it; the arguments are those of ``prepare``."""
    chosen = config.build(Preparation, options)
    check_tables(chosen)
    check_replaceable(Path(out), overwrite=overwrite, graded=chosen.is_graded)
    with storage.scratch() as scratch:
        heads = Heads(scratch, HEAD_BYTES, HEAD_ROWS)
        given = [head for one in inputs for head in heads.of(one)]
        parts: dict[str, Any] = {name: heads.of(getattr(chosen, name)) or None for name in _INPUTS}
        parts |= {name: next(iter(heads.of(getattr(chosen, name))), None) for name in _TABLES}
        notes: list[str] = []
        time: tuple[float | None, str | None] = (None, None)
        if not heads.is_cut:
            began = perf_counter()
            data = prepare(*inputs, progress=progress, echo=echo, **options)
            time = perf_counter() - began, "all of it was read, and nothing written"
            work = _work_of_data(data)
        else:
            cut = replace(chosen, **parts)
            work, notes = _work_of_heads(given, cut, heads, progress, echo)
    pairs = work.get("pairs")
    memory = None if pairs is None else int(pairs) * _BYTES_A_PAIR
    writes = {out: None}
    return outline("prepare", work, heads.files, writes, memory=memory, time=time, notes=notes)


def _work_of_data(data: Dataset) -> dict[str, Any]:
    """The sizes of the data, which is prepared in memory: all of it was read."""
    summary = data.summary
    sizes = {name: summary[name] for name in ("queries", "candidates", "pairs") if name in summary}
    parts = {name: len(data.graded(name)) for name in SPLITS} if data.kind == "graded" else {}
    parts = parts or {name: data.split(name).n_pairs for name in SPLITS}
    dropped = {one["why"]: one["rows"] for one in summary.get("dropped", ())}
    return {**sizes, "rows": summary.get("rows"), "split": parts, "dropped": dropped}


def _work_of_heads(
    given: Sequence[Path],
    options: Preparation,
    heads: Heads,
    progress: Progress,
    echo: Callable[[Taken], None],
) -> tuple[dict[str, Any], list[str]]:
    """Read the heads, and estimate the number of rows."""
    began = perf_counter()
    reading = Reading(heads.scratch, progress=progress, dialect=options.dialect)
    try:
        rows = read_inputs(given, options, reading)
        read_tables(options, reading, rows)
        n = _count(rows)
    finally:
        for taken in reading.taken:
            echo(taken)
    name, total = "rows" if options.is_graded else "pairs", heads.estimate(n)
    seconds = heads.estimate(perf_counter() - began)
    head = {f"{name} in the heads": n, "dropped there": dict(reading.bad.counts)}
    notes = ["only the heads of large files were read: sizes are estimates"]
    if total is None or seconds is None:
        return head, [*notes, "how many rows compressed files hold is not known"]
    notes.append(f"reading alone takes about {seconds:.3g} s, as the heads did")
    return {name: round(total), **head}, notes


def _count(rows: Rows) -> int:
    if isinstance(rows, GradedRows):
        return len(rows.grades)
    return count_rows(rows.pairs if isinstance(rows, Documents) else rows)
