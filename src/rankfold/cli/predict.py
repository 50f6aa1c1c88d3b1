"""``rankfold predict``: ranked lists or grades for a file of queries, as a Parquet file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rankfold.cli.console import console, print_json, progress
from rankfold.cli.info import describe_dropped
from rankfold.cli.options import IncludeSeen, Index, Json, Model, Quiet
from rankfold.errors import pluralize

DEFAULT_K = 10
DEFAULT_FPR = 0.01


def command(
    model: Model,
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT",
            help="Tables of query keys or, for a model that ranks by text, of texts; also files "
            "with one text per line. For a model that grades, one file of rows.",
        ),
    ],
    *,
    out: Annotated[Path, typer.Option(help="The file to write.", metavar="F.parquet")],
    k: Annotated[
        int | None, typer.Option("-k", help=f"Results per query; default: {DEFAULT_K}.")
    ] = None,
    fpr: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            help="For a model that grades: the largest share of the rows below a grade that may "
            f"get that grade or a higher one; default: {DEFAULT_FPR}.",
        ),
    ] = None,
    query_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The column of keys; 'none' numbers the rows of texts."),
    ] = None,
    text_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="The column of texts.")
    ] = None,
    with_text: Annotated[
        bool, typer.Option("--with-text", help="Also write the texts of the candidates.")
    ] = False,
    include_seen: IncludeSeen = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse unknown queries and bad rows.")
    ] = False,
    index: Index = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Rank candidates for every query of a file, or grade its rows.

    Writes query, rank, candidate, score; for graded rows query, score, grade.
    """
    from rankfold.models.load import load
    from rankfold.tasks.predict import predict

    options: dict[str, Any] = {
        "k": k,
        "fpr": fpr,
        "query_column": query_column,
        "text_column": text_column,
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
    """The counts of a prediction, for people."""
    parts = {
        "unknown": "unknown to the model, left out",
        "without_words": "without a known word, ranked by popularity",
    }
    left = [f"{done[name]:,} {what}" for name, what in parts.items() if done.get(name)]
    if n := done["left_out"]:
        left.append(f"{pluralize(n, 'row')} that could not be used")
    words = ("query", "queries") if "unknown" in done else ("row",)
    return "; ".join([pluralize(done["queries"], *words), *left])
