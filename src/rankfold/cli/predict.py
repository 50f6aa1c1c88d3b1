"""``rankfold predict``: ranked lists for a file of queries, as a Parquet file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from rankfold.cli.console import AsJson, Index, Quiet, console, print_json, progress


def command(
    model: Annotated[Path, typer.Argument(help="A folder written by `rankfold fit`.")],
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="Tables with query keys or, for a model that ranks by text, with texts; files of "
            "lines, a text each.",
        ),
    ],
    *,
    out: Annotated[Path, typer.Option(help="The file to write.", metavar="F.parquet")],
    k: Annotated[int, typer.Option("-k", help="Results per query.")] = 10,
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
    index: Index = "exact",
    json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Rank candidates for every query of a file; writes query, rank, candidate, score."""
    from rankfold.predicting import predict
    from rankfold.ranker import load

    with progress(quiet=quiet or json) as tell:
        done = predict(
            load(model, index=index),
            inputs,
            out,
            k=k,
            query=query_column,
            text=text_column,
            with_text=with_text,
            include_seen=include_seen,
            strict=strict,
            progress=tell,
        )
    if json:
        print_json({"out": str(out), **done})
    else:
        console(quiet=quiet).print(f"{out}: {describe(done)}")


def describe(done: Mapping[str, int]) -> str:
    """What was ranked, for people."""
    parts = {
        "unknown": "unknown queries left out",
        "without_words": "without a known word, ranked by popularity",
        "left_out": "rows that could not be used",
    }
    told = [f"{done[name]:,} {what}" for name, what in parts.items() if done[name]]
    return "; ".join([f"{done['queries']:,} queries", *told])
