"""``rankfold prepare``: turn interactions, documents or graded rows into a folder for fitting."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rankfold.cli.console import console, print_json, progress
from rankfold.cli.info import describe_data
from rankfold.cli.options import Json, Quiet, option, takes, with_settings
from rankfold.data.options import Preparation

_COLUMNS = ("query_column", "candidate_column", "grade_column", "time_column", "text_column")
_METAVAR = {
    **dict.fromkeys(("source", "format", *_COLUMNS), "NAME"),
    **dict.fromkeys(("grades", "drop_columns"), "A,B,..."),
    **{"label_separator": "MARK", "vocabulary": "N", "split": "RULE", "fold_in": "SHARE"},
}


def _file(name: str) -> Any:
    return option(Preparation, name, metavar="FILE")


@with_settings(Preparation, metavar=_METAVAR)
def command(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT",
            help="Files or globs: CSV, TSV, JSON lines, Parquet, Arrow, adjacency, plain, .gz or "
            ".zst; features: also .npz, KEEL .dat, folders of images.",
        ),
    ] = None,
    *,
    out: Annotated[Path, takes("DATA", "The folder to write.")],
    train: Annotated[list[str] | None, _file("train")] = None,
    validation: Annotated[list[str] | None, _file("validation")] = None,
    test: Annotated[list[str] | None, _file("test")] = None,
    query_features: Annotated[str | None, _file("query_features")] = None,
    candidate_features: Annotated[str | None, _file("candidate_features")] = None,
    query_texts: Annotated[str | None, _file("query_texts")] = None,
    candidate_texts: Annotated[str | None, _file("candidate_texts")] = None,
    json: Json = False,
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Read interactions, documents or graded rows, split them, write a folder for `fit`."""
    options |= {"train": train or None, "validation": validation or None, "test": test or None}
    options |= {"query_features": query_features, "candidate_features": candidate_features}
    options |= {"query_texts": query_texts, "candidate_texts": candidate_texts}
    from rankfold.data.prepare import prepare

    with progress(quiet=quiet or json) as report:
        data = prepare(*(inputs or []), out=out, progress=report, **options)
    if json:
        print_json({"data": str(out), "summary": dict(data.summary)})
    else:
        describe_data(data, str(out), console(quiet=quiet))
