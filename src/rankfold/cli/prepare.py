"""``rankfold prepare``: turn interactions, documents or graded rows into a folder for fitting."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rankfold.cli.console import console, print_json, progress
from rankfold.cli.info import describe_data
from rankfold.cli.options import Json, Quiet, takes, with_settings
from rankfold.data.options import Preparation

_COLUMNS = ("query_column", "candidate_column", "grade_column", "time_column", "text_column")
_SPLITS = ("train", "validation", "test")
_TABLES = ("query_features", "candidate_features", "query_texts", "candidate_texts")
_KINDS = {**dict.fromkeys(_SPLITS, list[str] | None), **dict.fromkeys(_TABLES, str | None)}
_METAVAR = {
    **dict.fromkeys(_KINDS, "FILE"),
    **dict.fromkeys(("source", "format", *_COLUMNS), "NAME"),
    **dict.fromkeys(("grades", "drop"), "A,B,..."),
    **{"label_separator": "MARK", "vocabulary": "N", "split": "RULE", "fold_in": "SHARE"},
}


@with_settings(Preparation, metavar=_METAVAR, kinds=_KINDS)
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
    json: Json = False,
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Read interactions, documents or graded rows, split them, write a folder for `fit`."""
    from rankfold.data.prepare import prepare

    options |= {name: options[name] or None for name in _SPLITS}
    with progress(quiet=quiet or json) as report:
        data = prepare(*(inputs or []), out=out, progress=report, **options)
    if json:
        print_json({"data": str(out), "summary": dict(data.summary)})
    else:
        describe_data(data, str(out), console(quiet=quiet))
