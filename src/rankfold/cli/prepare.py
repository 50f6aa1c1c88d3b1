"""``rankfold prepare``: turn interactions, documents or graded rows into a folder for fitting."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from rankfold.cli.console import console, print_json, progress
from rankfold.cli.info import describe_data
from rankfold.cli.options import Json, Quiet
from rankfold.config import declarations
from rankfold.data.options import DEFAULTS, Preparation

_DECLARED, _DEFAULT = declarations(Preparation), SimpleNamespace(**DEFAULTS)


def _option(name: str, *flags: str, metavar: str | None = None) -> Any:
    """The option of a field of ``Preparation``, with its help."""
    text = _DECLARED[name].help
    return typer.Option(*flags, metavar=metavar, help=f"{text[0].upper()}{text[1:]}.")


_name, _file = partial(_option, metavar="NAME"), partial(_option, metavar="FILE")


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
    source: Annotated[str | None, _name("source")] = _DEFAULT.source,
    format: Annotated[str | None, _name("format")] = _DEFAULT.format,
    train: Annotated[list[str] | None, _file("train")] = _DEFAULT.train,
    validation: Annotated[list[str] | None, _file("validation")] = _DEFAULT.validation,
    test: Annotated[list[str] | None, _file("test")] = _DEFAULT.test,
    validation_share: Annotated[float, _option("validation_share")] = _DEFAULT.validation_share,
    query_column: Annotated[str | None, _name("query_column")] = _DEFAULT.query_column,
    candidate_column: Annotated[str | None, _name("candidate_column")] = _DEFAULT.candidate_column,
    grade_column: Annotated[str | None, _name("grade_column")] = _DEFAULT.grade_column,
    time_column: Annotated[str | None, _name("time_column")] = _DEFAULT.time_column,
    text_column: Annotated[str | None, _name("text_column")] = _DEFAULT.text_column,
    header: Annotated[bool, _option("header")] = _DEFAULT.header,
    grades: Annotated[str | None, _option("grades", metavar="A,B,...")] = _DEFAULT.grades,
    drop_columns: Annotated[
        str | None, _option("drop_columns", metavar="A,B,...")
    ] = _DEFAULT.drop_columns,
    image_size: Annotated[int, _option("image_size")] = _DEFAULT.image_size,
    query_features: Annotated[str | None, _file("query_features")] = _DEFAULT.query_features,
    candidate_features: Annotated[
        str | None, _file("candidate_features")
    ] = _DEFAULT.candidate_features,
    query_texts: Annotated[str | None, _file("query_texts")] = _DEFAULT.query_texts,
    candidate_texts: Annotated[str | None, _file("candidate_texts")] = _DEFAULT.candidate_texts,
    label_separator: Annotated[
        str | None, _option("label_separator", metavar="MARK")
    ] = _DEFAULT.label_separator,
    content: Annotated[bool, _option("content", "--content")] = _DEFAULT.content,
    tokens: Annotated[str, _option("tokens")] = _DEFAULT.tokens,
    vocabulary: Annotated[int | None, _option("vocabulary", metavar="N")] = _DEFAULT.vocabulary,
    min_grade: Annotated[float | None, _option("min_grade")] = _DEFAULT.min_grade,
    duplicates: Annotated[str, _option("duplicates")] = _DEFAULT.duplicates,
    exclude_self: Annotated[
        bool, _option("exclude_self", "--exclude-self")
    ] = _DEFAULT.exclude_self,
    min_query_pairs: Annotated[int, _option("min_query_pairs")] = _DEFAULT.min_query_pairs,
    min_candidate_pairs: Annotated[
        int, _option("min_candidate_pairs")
    ] = _DEFAULT.min_candidate_pairs,
    kcore: Annotated[int, _option("kcore")] = _DEFAULT.kcore,
    split: Annotated[str | None, _option("split", metavar="RULE")] = _DEFAULT.split,
    fold_in: Annotated[float | None, _option("fold_in", metavar="SHARE")] = _DEFAULT.fold_in,
    seed: Annotated[int, _option("seed")] = _DEFAULT.seed,
    strict: Annotated[bool, _option("strict", "--strict")] = _DEFAULT.strict,
    shards: Annotated[int, _option("shards")] = _DEFAULT.shards,
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
