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

    done = forget(model, keys)
    n, left = done.forgotten, len(done.ranker.queries)
    if json:
        counts = {"forgotten": n, "unknown": done.unknown, "queries": left}
        print_json({"model": str(model), **counts})
        return
    out = console(quiet=quiet)
    out.print(f"{model}: {n:,} forgotten, {left:,} queries left")
    for key in done.unknown:
        problem = done.ranker.queries.unknown(key, "query")
        out.print(f"  {problem}: misspelt, or forgotten before; {problem.hint}", style="yellow")
