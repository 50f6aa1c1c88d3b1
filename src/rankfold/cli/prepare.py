"""``rankfold prepare``: turn interactions, documents or graded rows into a folder for fitting."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rankfold.cli.console import console, print_json, progress
from rankfold.cli.info import describe_data
from rankfold.cli.options import Json, Quiet
from rankfold.config import declarations
from rankfold.data.options import DEFAULTS, Preparation

DECLARED = declarations(Preparation)


def _option(name: str, *flags: str, metavar: str | None = None) -> Any:
    """The option of a field of ``Preparation``, with its help."""
    text = DECLARED[name].help
    return typer.Option(*flags, metavar=metavar, help=f"{text[0].upper()}{text[1:]}.")


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
    out: Annotated[Path, typer.Option(help="The folder to write.", metavar="DATA")],
    source: Annotated[str | None, _option("source", metavar="NAME")] = DEFAULTS["source"],
    format: Annotated[str | None, _option("format", metavar="NAME")] = DEFAULTS["format"],
    train: Annotated[list[str] | None, _option("train", metavar="FILE")] = DEFAULTS["train"],
    validation: Annotated[list[str] | None, _option("validation", metavar="FILE")] = DEFAULTS[
        "validation"
    ],
    test: Annotated[list[str] | None, _option("test", metavar="FILE")] = DEFAULTS["test"],
    validation_share: Annotated[float, _option("validation_share")] = DEFAULTS["validation_share"],
    query_column: Annotated[str | None, _option("query_column", metavar="NAME")] = DEFAULTS[
        "query_column"
    ],
    candidate_column: Annotated[str | None, _option("candidate_column", metavar="NAME")] = DEFAULTS[
        "candidate_column"
    ],
    grade_column: Annotated[str | None, _option("grade_column", metavar="NAME")] = DEFAULTS[
        "grade_column"
    ],
    time_column: Annotated[str | None, _option("time_column", metavar="NAME")] = DEFAULTS[
        "time_column"
    ],
    text_column: Annotated[str | None, _option("text_column", metavar="NAME")] = DEFAULTS[
        "text_column"
    ],
    header: Annotated[bool, _option("header")] = DEFAULTS["header"],
    grades: Annotated[str | None, _option("grades", metavar="A,B,...")] = DEFAULTS["grades"],
    drop_columns: Annotated[str | None, _option("drop_columns", metavar="A,B,...")] = DEFAULTS[
        "drop_columns"
    ],
    image_size: Annotated[int, _option("image_size")] = DEFAULTS["image_size"],
    query_features: Annotated[str | None, _option("query_features", metavar="FILE")] = DEFAULTS[
        "query_features"
    ],
    candidate_features: Annotated[
        str | None, _option("candidate_features", metavar="FILE")
    ] = DEFAULTS["candidate_features"],
    query_texts: Annotated[str | None, _option("query_texts", metavar="FILE")] = DEFAULTS[
        "query_texts"
    ],
    candidate_texts: Annotated[str | None, _option("candidate_texts", metavar="FILE")] = DEFAULTS[
        "candidate_texts"
    ],
    label_separator: Annotated[str | None, _option("label_separator", metavar="MARK")] = DEFAULTS[
        "label_separator"
    ],
    content: Annotated[bool, _option("content", "--content")] = DEFAULTS["content"],
    tokens: Annotated[str, _option("tokens")] = DEFAULTS["tokens"],
    vocabulary: Annotated[int | None, _option("vocabulary", metavar="N")] = DEFAULTS["vocabulary"],
    min_grade: Annotated[float | None, _option("min_grade")] = DEFAULTS["min_grade"],
    duplicates: Annotated[str, _option("duplicates")] = DEFAULTS["duplicates"],
    exclude_self: Annotated[bool, _option("exclude_self", "--exclude-self")] = DEFAULTS[
        "exclude_self"
    ],
    kcore: Annotated[int, _option("kcore")] = DEFAULTS["kcore"],
    split: Annotated[str | None, _option("split", metavar="RULE")] = DEFAULTS["split"],
    seed: Annotated[int, _option("seed")] = DEFAULTS["seed"],
    strict: Annotated[bool, _option("strict", "--strict")] = DEFAULTS["strict"],
    shards: Annotated[int, _option("shards")] = DEFAULTS["shards"],
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Read interactions, documents or graded rows, split them, write a folder for `fit`."""
    options = {name: value for name, value in locals().items() if name in DEFAULTS}
    for name in ("train", "validation", "test"):
        options[name] = options[name] or None
    from rankfold.data.prepare import prepare

    with progress(quiet=quiet or json) as report:
        data = prepare(*(inputs or []), out=out, progress=report, **options)
    if json:
        print_json({"data": str(out), "summary": dict(data.summary)})
    else:
        describe_data(data, str(out), console(quiet=quiet))
