"""``rankfold predict``: ranked lists or grades for a file of queries."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rankfold.cli.console import console, print_json, progress
from rankfold.cli.dry_run import show_outline
from rankfold.cli.info import describe_dropped
from rankfold.cli.options import DryRun, Index, Json, Model, Quiet, given, takes, with_settings
from rankfold.data.options import TableOptions
from rankfold.errors import pluralize
from rankfold.tasks.options import GradeOptions, RankOptions


@with_settings(
    RankOptions,
    GradeOptions,
    TableOptions,
    metavar={
        "separator": "MARK",
        "missing": "A,B,...",
        "fpr": "RATE",
        "confidence": "SHARE",
        "thresholds": "GOAL",
        "query_column": "NAME",
        "text_column": "NAME",
    },
    unset=True,
)
def command(
    model: Model,
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT",
            help="Tables of query keys or, for a model that ranks by text, of texts; also files "
            "with one text per line. For a model that grades, one file of rows.",
        ),
    ],
    *,
    out: Annotated[Path, takes("FILE", "The file to write: .parquet, .csv or .jsonl.")],
    index: Index = None,
    dry_run: DryRun = False,
    json: Json = False,
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Rank candidates for every query of a file, or grade its rows.

    Writes query, rank, candidate, score; for graded rows query, score, grade, and the probability
    of each grade.
    """
    from rankfold.models.load import load
    from rankfold.tasks.predict import predict

    if dry_run:
        from rankfold.tasks.dry_run.predict import outline_predict

        outline = outline_predict(model, inputs, out, index=index, **given(options))
        return show_outline(outline, json=json, quiet=quiet)
    loaded = load(model, index=index)
    with progress(quiet=quiet or json) as callback:
        done = predict(loaded, inputs, out, progress=callback, **given(options))
    if json:
        print_json({"out": str(out), **done})
        return
    people = console(quiet=quiet)
    for caution in done.get("cautions", []):
        people.print(caution, style="yellow")
    people.print(f"{out}: {describe(done)}")
    if "rate" in done:
        people.print(done["rate"]["means"])
    describe_dropped(done.get("dropped", []), people)


def describe(done: Mapping[str, Any]) -> str:
    """The counts of a prediction, for people."""
    parts = {
        "unknown": "unknown to the model, left out",
        "without_words": "without a known word, ranked by popularity",
    }
    left = [f"{done[name]:,} {what}" for name, what in parts.items() if done.get(name)]
    if n := done["left_out"]:
        left.append(f"{pluralize(n, 'row')} that could not be used")
    words = ("query", "queries") if "unknown" in done else ("row",)
    return "; ".join([pluralize(done["queries"], *words), *left])
