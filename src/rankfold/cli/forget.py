"""``rankfold forget``: remove queries from a model."""

from pathlib import Path
from typing import Annotated

import typer

from rankfold.cli.console import AsJson, Quiet, console, print_json


def command(
    model: Annotated[Path, typer.Argument(help="A folder written by `rankfold fit`.")],
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="Queries.")],
    *,
    json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Remove queries from a model: their keys, vectors and pairs are gone."""
    from rankfold.tasks.update import forget

    left = len(forget(model, keys).queries)
    n = len(set(keys))
    if json:
        print_json({"model": str(model), "forgotten": n, "queries": left})
    else:
        console(quiet=quiet).print(f"{model}: {n:,} forgotten, {left:,} queries left")
