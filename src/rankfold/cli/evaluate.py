"""``rankfold evaluate``: how well a model ranks a held-out split."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankfold.cli.console import AsJson, Index, Quiet, console, print_json, print_table, progress

if TYPE_CHECKING:
    from rich.console import Console

    from rankfold.evaluation import Stratum

DEFAULT = "ndcg@10,mrr@10,recall@20,hit@10,coverage@10"


def command(
    model: Annotated[Path, typer.Argument(help="A folder written by `rankfold fit`.")],
    data: Annotated[Path, typer.Argument(help="A folder written by `rankfold prepare`.")],
    *,
    split: Annotated[str, typer.Option(help="validation or test.")] = "test",
    metrics: Annotated[str, typer.Option(help="Names with a cut-off, comma-separated.")] = DEFAULT,
    propensity: Annotated[
        str, typer.Option(metavar="A,B", help="Of the propensities of psp and psn.")
    ] = "0.55,1.5",
    strata: Annotated[
        bool, typer.Option("--strata", help="Also by how frequent the positives are in train.")
    ] = False,
    index: Index = "exact",
    json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Rank all candidates for every query of a split and measure how well."""
    from rankfold.evaluation import evaluate
    from rankfold.metrics import parse_propensity
    from rankfold.ranker import load

    names = [name for name in metrics.split(",") if name.strip()]
    given = parse_propensity(propensity)
    with progress(quiet=quiet or json) as tell:
        result = evaluate(
            load(model),
            data,
            split=split,  # type: ignore[arg-type]
            metrics=names,
            propensity=given,
            strata=strata,
            index=index,
            progress=tell,
        )
    if json:
        print_json(result.to_json())
        return
    out = console(quiet=quiet)
    rows = [[name, f"{value:.4f}"] for name, value in result.metrics.items()]
    print_table(f"{model} on {data}, {split}", ["metric", "mean"], rows, out)
    if result.strata:
        _print_strata(result.strata, out)
    if result.propensity is not None:
        a, b = result.propensity
        out.print(f"propensities of psp and psn: A = {a:g}, B = {b:g}")
    left_out = f"{result.without_positive:,} without a pair in it are left out"
    unknown = f", {result.unknown:,} unknown to the model" if result.unknown else ""
    out.print(f"{result.queries:,} queries; {left_out}{unknown}")
    if result.trained_on:
        out.print(
            f"{result.trained_on:,} pairs of the {split} split were among those "
            "that the model was fitted on: these figures are too high",
            style="yellow",
        )


def _print_strata(strata: Sequence[Stratum], out: Console) -> None:
    """A column per group of candidates: there may be many metrics."""
    rows = [
        [what, *(f"{getattr(part, what.replace(' ', '_')):,}" for part in strata)]
        for what in ("candidates", "train pairs", "queries")
    ]
    for name in dict.fromkeys(name for part in strata for name in part.metrics):
        values = (part.metrics.get(name) for part in strata)
        rows.append([name, *("-" if value is None else f"{value:.4f}" for value in values)])
    columns = ["positives", *(part.name for part in strata)]
    print_table("by frequency in train", columns, rows, out)
