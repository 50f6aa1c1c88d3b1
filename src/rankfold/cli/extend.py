"""``rankfold extend``: add candidates to a model, by their features or texts."""

from pathlib import Path
from typing import Annotated

import typer

from rankfold.cli.console import console, print_json
from rankfold.cli.dry_run import show_outline
from rankfold.cli.info import describe_addition, describe_dropped
from rankfold.cli.options import DryRun, Json, Model, Quiet, takes
from rankfold.errors import pluralize


def command(
    model: Model,
    table: Annotated[
        str,
        typer.Argument(
            help="A row per new candidate: features or, for a model that ranks by text, texts.",
            metavar="TABLE",
        ),
    ],
    *,
    key_column: Annotated[
        str | None,
        takes(
            "NAME",
            "The column of keys; default: 'candidate', else the first column that is not a "
            "feature of the model.",
        ),
    ] = None,
    text_column: Annotated[str | None, takes("NAME", "The column of texts.")] = None,
    documents: Annotated[
        Path | None,
        takes("DATA", "For texts: then add these prepared documents, as `rankfold add` does."),
    ] = None,
    dry_run: DryRun = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Add candidates that no query has chosen yet, by their features or texts."""
    from rankfold.tasks.update import extend

    if dry_run:
        from rankfold.tasks.dry_run.extend import outline_extend

        outline = outline_extend(model, table, key_column, text_column, documents)
        return show_outline(outline, json=json, quiet=quiet)
    ranker = extend(model, table, key_column, text_column, documents)
    entry, n = ranker.model.notes["extended"][-1], len(ranker.candidates)
    if json:
        rest = {name: count for name, count in entry.items() if name != "candidates"}
        if documents is not None:
            rest["documents"] = ranker.model.notes["added"][-1]
        print_json({"model": str(model), "added": entry["candidates"], "candidates": n, **rest})
        return
    out = console(quiet=quiet)
    out.print(f"{model}: {entry['candidates']:,} candidates added, {n:,} in all")
    if documents is not None:
        out.print(f"  {describe_addition(ranker.model.notes['added'][-1])}")
    if entry.get("indexes_dropped"):
        hint = f"  its index was removed: `rankfold index {model}` builds a new one"
        out.print(hint, style="yellow")
    if entry["left_out"]:
        rows = pluralize(entry["left_out"], "row")
        out.print(f"  {rows} of {table} could not be used", style="yellow")
        describe_dropped(entry.get("dropped", []), out)
    if entry.get("without_words"):
        n_blank = f"{entry['without_words']:,}"
        blank = f"  {n_blank} have no word that the model knows: they score 0 for any text"
        out.print(blank, style="yellow")
