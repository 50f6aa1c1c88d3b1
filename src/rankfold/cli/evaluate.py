"""``rankfold evaluate``: how well a model ranks a held-out split."""

from pathlib import Path
from typing import Annotated

import typer

from rankfold.cli.console import AsJson, Quiet, console, print_json, print_table, progress

DEFAULT = "ndcg@10,mrr@10,recall@20,hit@10,coverage@10"


def command(
    model: Annotated[Path, typer.Argument(help="A folder written by `rankfold fit`.")],
    data: Annotated[Path, typer.Argument(help="A folder written by `rankfold prepare`.")],
    *,
    split: Annotated[str, typer.Option(help="validation or test.")] = "test",
    metrics: Annotated[str, typer.Option(help="Names with a cut-off, comma-separated.")] = DEFAULT,
    json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Rank all candidates for every query of a split and measure how well."""
    from rankfold.evaluation import evaluate
    from rankfold.ranker import load

    names = [name for name in metrics.split(",") if name.strip()]
    with progress(quiet=quiet or json) as tell:
        result = evaluate(load(model), data, split=split, metrics=names, progress=tell)  # type: ignore[arg-type]
    if json:
        print_json(result.to_json())
        return
    out = console(quiet=quiet)
    rows = [[name, f"{value:.4f}"] for name, value in result.metrics.items()]
    print_table(f"{model} on {data}, {split}", ["metric", "mean"], rows, out)
    left_out = f"{result.without_positive:,} without a pair in it are left out"
    unknown = f", {result.unknown:,} unknown to the model" if result.unknown else ""
    out.print(f"{result.queries:,} queries; {left_out}{unknown}")
    if result.trained_on:
        out.print(
            f"{result.trained_on:,} pairs of the {split} split were among those "
            "that the model was fitted on: these figures are too high",
            style="yellow",
        )
