"""``rankfold forget``: remove queries from a model."""

from typing import Annotated

import typer

from rankfold.cli.console import console, print_json
from rankfold.cli.options import Json, Model, Quiet


def command(
    model: Model,
    keys: Annotated[list[str], typer.Argument(metavar="KEY", help="Queries to remove.")],
    *,
    json: Json = False,
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
