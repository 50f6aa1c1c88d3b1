"""``rankfold forget``: remove queries or candidates from a model."""

from typing import TYPE_CHECKING, Annotated

import typer

from rankfold.cli.console import console, print_json
from rankfold.cli.options import Json, Model, Quiet

if TYPE_CHECKING:
    from rankfold.types import Side


def command(
    model: Model,
    keys: Annotated[list[str], typer.Argument(metavar="KEY", help="Queries to remove.")],
    *,
    candidates: Annotated[
        bool, typer.Option("--candidates", help="The keys are candidates, of a model for texts.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Remove queries or candidates from a model: their keys, vectors and pairs are gone."""
    from rankfold.tasks.update import forget

    side: Side = "candidate" if candidates else "query"
    done = forget(model, keys, side)
    known = done.ranker.candidates if candidates else done.ranker.queries
    n, left, what = done.forgotten, len(known), "candidates" if candidates else "queries"
    if json:
        counts = {"forgotten": n, "unknown": done.unknown, what: left}
        print_json({"model": str(model), **counts})
        return
    out = console(quiet=quiet)
    out.print(f"{model}: {n:,} forgotten, {left:,} {what} left")
    for key in done.unknown:
        problem = known.unknown(key, side)
        out.print(f"  {problem}: misspelt, or forgotten before; {problem.hint}", style="yellow")
