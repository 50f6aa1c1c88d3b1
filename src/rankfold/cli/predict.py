"""``rankfold predict``: ranked lists for a file of queries, as a Parquet file."""

from pathlib import Path
from typing import Annotated

import typer

from rankfold.cli.console import AsJson, Quiet, console, print_json, progress


def command(
    model: Annotated[Path, typer.Argument(help="A folder written by `rankfold fit`.")],
    inputs: Annotated[
        list[str], typer.Argument(metavar="INPUT...", help="Tables with query keys.")
    ],
    *,
    out: Annotated[Path, typer.Option(help="The file to write.", metavar="F.parquet")],
    k: Annotated[int, typer.Option("-k", help="Results per query.")] = 10,
    query_column: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    include_seen: Annotated[
        bool, typer.Option("--include-seen", help="Also what the query chose before.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse unknown queries.")] = False,
    json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Rank candidates for every query of a file; writes query, rank, candidate, score."""
    from rankfold.predicting import predict
    from rankfold.ranker import load

    with progress(quiet=quiet or json) as tell:
        done = predict(
            load(model),
            inputs,
            out,
            k=k,
            query=query_column,
            include_seen=include_seen,
            strict=strict,
            progress=tell,
        )
    if json:
        print_json({"out": str(out), **done})
        return
    unknown = f"; {done['unknown']:,} unknown queries left out" if done["unknown"] else ""
    console(quiet=quiet).print(f"{out}: {done['queries']:,} queries{unknown}")
