"""``rankfold predict``: ranked lists or grades for a file of queries, as a Parquet file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rankfold.cli.console import AsJson, Index, Quiet, console, print_json, progress
from rankfold.cli.info import describe_dropped
from rankfold.errors import pluralize

K = 10
FPR = 0.01


def command(
    model: Annotated[Path, typer.Argument(help="A folder written by `rankfold fit`.")],
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="Tables with query keys or, for a model that ranks by text, with texts; files of "
            "lines, a text each. For a model of graded rows, one file of rows.",
        ),
    ],
    *,
    out: Annotated[Path, typer.Option(help="The file to write.", metavar="F.parquet")],
    k: Annotated[
        int | None, typer.Option("-k", help=f"Results per query, {K} unless told.")
    ] = None,
    fpr: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            help="Of graded rows: the share of lower ones that may get a grade or a higher one, "
            f"{FPR} unless told.",
        ),
    ] = None,
    query_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="'none' to count the rows of texts.")
    ] = None,
    text_column: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    with_text: Annotated[
        bool, typer.Option("--with-text", help="Also write the texts of the candidates.")
    ] = False,
    include_seen: Annotated[
        bool, typer.Option("--include-seen", help="Also what the query chose before.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse unknown queries and bad rows.")
    ] = False,
    index: Index = None,
    json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Rank candidates for every query of a file, or give its rows grades.

    Writes query, rank, candidate, score; of graded rows query, score, grade.
    """
    from rankfold.models.grader import load
    from rankfold.tasks.predict import predict

    options: dict[str, Any] = {
        "k": k,
        "fpr": fpr,
        "query": query_column,
        "text": text_column,
        "with_text": with_text or None,
        "include_seen": include_seen or None,
        "strict": strict or None,
    }
    given = {name: value for name, value in options.items() if value is not None}
    loaded = load(model, index=index)
    with progress(quiet=quiet or json) as tell:
        done = predict(loaded, inputs, out, progress=tell, **given)
    if json:
        print_json({"out": str(out), **done})
        return
    people = console(quiet=quiet)
    for caution in done.get("cautions", []):
        people.print(caution, style="yellow")
    people.print(f"{out}: {describe(done)}")
    describe_dropped(done.get("dropped", []), people)


def describe(done: Mapping[str, Any]) -> str:
    """What was ranked, for people."""
    parts = {
        "unknown": "unknown to the model, left out",
        "without_words": "without a known word, ranked by popularity",
    }
    told = [f"{done[name]:,} {what}" for name, what in parts.items() if done.get(name)]
    if n := done["left_out"]:
        told.append(f"{pluralize(n, 'row')} that could not be used")
    words = ("query", "queries") if "unknown" in done else ("row",)
    return "; ".join([pluralize(done["queries"], *words), *told])
