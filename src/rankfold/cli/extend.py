"""``rankfold extend``: add candidates to a model, by their features or texts."""

from pathlib import Path
from typing import Annotated

import typer

from rankfold.cli.console import AsJson, Quiet, console, print_json
from rankfold.cli.info import describe_dropped
from rankfold.errors import pluralize


def command(
    model: Annotated[Path, typer.Argument(help="A folder written by `rankfold fit`.")],
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
        typer.Option(
            metavar="NAME",
            help="Where the keys are; if not given, 'candidate', else the first column that is "
            "no feature of the model.",
        ),
    ] = None,
    text_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Where the texts are.")
    ] = None,
    json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Add candidates that nobody has chosen yet, ranked by what is known of them."""
    from rankfold.tasks.update import extend

    ranker = extend(model, table, key_column, text_column)
    entry, n = ranker.model.notes["extended"][-1], len(ranker.candidates)
    if json:
        rest = {name: count for name, count in entry.items() if name != "candidates"}
        print_json({"model": str(model), "added": entry["candidates"], "candidates": n, **rest})
        return
    out = console(quiet=quiet)
    out.print(f"{model}: {entry['candidates']:,} candidates added, {n:,} in all")
    if entry.get("indexes_dropped"):
        hint = f"its index was dropped: `rankfold index {model}` builds one of all candidates"
        out.print(f"  {hint}", style="yellow")
    if entry["left_out"]:
        rows = pluralize(entry["left_out"], "row")
        out.print(f"  {rows} of {table} could not be used", style="yellow")
        describe_dropped(entry.get("dropped", []), out)
    if entry.get("without_words"):
        none = f"  the model knows no word of {entry['without_words']:,}: they score 0 for any text"
        out.print(none, style="yellow")
