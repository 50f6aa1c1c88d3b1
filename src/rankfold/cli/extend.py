"""``rankfold extend``: add candidates to a model, by their features."""

from pathlib import Path
from typing import Annotated

import typer

from rankfold.cli.console import AsJson, Quiet, console, print_json


def command(
    model: Annotated[Path, typer.Argument(help="A folder written by `rankfold fit`.")],
    features: Annotated[
        str, typer.Argument(help="A table with a row per new candidate.", metavar="FEATURES")
    ],
    *,
    key_column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Where the keys are; if not given, 'candidate', else the first column that is "
            "no feature of the model.",
        ),
    ] = None,
    json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Add candidates that nobody has chosen yet, ranked by what is known of them."""
    from rankfold.growing import extend

    ranker = extend(model, features, key_column)
    entry, n = ranker.model.notes["extended"][-1], len(ranker.candidates)
    if json:
        left_out = {"left_out": entry["left_out"]}
        added = entry["candidates"]
        print_json({"model": str(model), "added": added, "candidates": n, **left_out})
        return
    out = console(quiet=quiet)
    out.print(f"{model}: {entry['candidates']:,} candidates added, {n:,} in all")
    if entry["left_out"]:
        out.print(f"  {entry['left_out']:,} rows of {features} could not be used", style="yellow")
