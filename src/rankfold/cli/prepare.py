"""``rankfold prepare``: interactions, documents or graded rows become a folder for fitting."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rankfold.cli.console import console, print_json, progress
from rankfold.cli.info import describe_data
from rankfold.cli.options import Json, Quiet, Seed

Name = Annotated[str | None, typer.Option(metavar="NAME")]
Files = Annotated[list[str] | None, typer.Option(metavar="FILE")]


def command(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[INPUT]...",
            help="Files or globs: CSV, TSV, JSON lines, Parquet, Arrow, adjacency; .gz, .zst too; "
            "features: also .npz, KEEL .dat, folders of images.",
        ),
    ] = None,
    *,
    out: Annotated[Path, typer.Option(help="The folder to write.", metavar="DATA")],
    source: Annotated[
        str | None, typer.Option(help="A public data set by name; see the guide.", metavar="NAME")
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            help="table or adjacency, told from the file if not given; texts: documents with "
            "labels; xc: a folder of the XC repository; features: rows with an ordered grade each."
        ),
    ] = None,
    train: Files = None,
    validation: Files = None,
    test: Files = None,
    validation_share: Annotated[
        float, typer.Option(help="Carved from train if splits are given without validation.")
    ] = 0.1,
    query_column: Name = None,
    candidate_column: Name = None,
    grade_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="'none' to do without grades.")
    ] = None,
    grades: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="features: the grades, lowest first; numbers ascend if not given.",
        ),
    ] = None,
    drop_columns: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="features: columns to leave out.")
    ] = None,
    image_size: Annotated[
        int, typer.Option(help="features: images from files get this height and width.")
    ] = 64,
    time_column: Name = None,
    query_features: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="What is known of queries: a table whose keys are in the column named as the "
            "queries' one or, without such, in the first.",
        ),
    ] = None,
    candidate_features: Annotated[
        str | None, typer.Option(metavar="FILE", help="Likewise of candidates.")
    ] = None,
    query_texts: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Texts of queries: keys as for features, and a text."),
    ] = None,
    candidate_texts: Annotated[
        str | None, typer.Option(metavar="FILE", help="Likewise of candidates.")
    ] = None,
    text_column: Name = None,
    label_separator: Annotated[
        str | None,
        typer.Option(
            metavar="MARK",
            help="Between labels; if not given the first of | ; , found, else space.",
        ),
    ] = None,
    content: Annotated[
        bool, typer.Option("--content", help="xc: add the content of a document to its title.")
    ] = False,
    tokens: Annotated[
        str, typer.Option(help="What texts are turned into: word or word-piece.")
    ] = "word",
    vocabulary: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="At most so many tokens; as usual for their kind if not given."
        ),
    ] = None,
    header: Annotated[
        bool, typer.Option(help="Without one, columns are column_0, column_1, ...")
    ] = True,
    min_grade: Annotated[float | None, typer.Option(help="Drop pairs of a lower grade.")] = None,
    duplicates: Annotated[
        str, typer.Option(help="Which of equal pairs stays: highest (grade) or last.")
    ] = "highest",
    exclude_self: Annotated[
        bool, typer.Option("--exclude-self", help="A query's own key is never a candidate of its.")
    ] = False,
    kcore: Annotated[
        int, typer.Option(help="Keep queries and candidates with at least so many pairs.")
    ] = 0,
    split: Annotated[
        str | None,
        typer.Option(
            metavar="RULE",
            help="Shares of each query's pairs or each grade's rows (0.8,0.1,0.1 if not given), of "
            "whole queries ('queries:0.8,0.1,0.1', which is usual for texts), 'last', or 'time:T'.",
        ),
    ] = None,
    seed: Seed = 0,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse bad rows.")] = False,
    shards: Annotated[
        int, typer.Option(help="Write the pairs in so many files, by contiguous queries.")
    ] = 1,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Read interactions, documents or graded rows, split them, write a folder for `fit`."""
    from rankfold.data.prepare import prepare

    options: dict[str, Any] = {
        "query": query_column,
        "candidate": candidate_column,
        "grade": grade_column,
        "grades": grades,
        "drop_columns": drop_columns,
        "image_size": image_size,
        "time": time_column,
        "query_features": query_features,
        "candidate_features": candidate_features,
        "query_texts": query_texts,
        "candidate_texts": candidate_texts,
        "text": text_column,
        "label_separator": label_separator,
        "content": content,
        "tokens": tokens,
        "vocabulary": vocabulary,
        "header": header,
        "source": source,
        "format": format,
        "train": train or None,
        "validation": validation or None,
        "test": test or None,
        "validation_share": validation_share,
        "min_grade": min_grade,
        "duplicates": duplicates,
        "exclude_self": exclude_self,
        "kcore": kcore,
        "split": split,
        "seed": seed,
        "strict": strict,
        "shards": shards,
    }
    with progress(quiet=quiet or json) as tell:
        data = prepare(*(inputs or []), out=out, progress=tell, **options)
    if json:
        print_json({"data": str(out), "summary": dict(data.summary)})
    else:
        describe_data(data, str(out), console(quiet=quiet))
