"""``rankfold add``: add pairs to a model, without fitting it again."""

from typing import Annotated

import typer

from rankfold.cli.console import console, print_json
from rankfold.cli.dry_run import show_outline
from rankfold.cli.info import describe_addition
from rankfold.cli.options import DryRun, Json, Model, Quiet, takes

_FITTED = "of a file; default: as in the fitted data."


def command(
    model: Model,
    data: Annotated[str, typer.Argument(help="A file of pairs, or prepared data.", metavar="DATA")],
    *,
    query_column: Annotated[str | None, takes("NAME", f"The column of queries {_FITTED}")] = None,
    candidate_column: Annotated[
        str | None, takes("NAME", f"The column of candidates {_FITTED}")
    ] = None,
    dry_run: DryRun = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Add pairs of known or new queries; candidates keep their vectors."""
    from rankfold.tasks.update import add

    columns = {"query_column": query_column, "candidate_column": candidate_column}
    if dry_run:
        from rankfold.tasks.dry_run.add import outline_add

        return show_outline(outline_add(model, data, **columns), json=json, quiet=quiet)
    entry = add(model, data, **columns).model.notes["added"][-1]
    if json:
        print_json({"model": str(model), "added": entry})
    else:
        console(quiet=quiet).print(f"{model}: {describe_addition(entry)}")
