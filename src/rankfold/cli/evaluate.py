"""``rankfold evaluate``: how well a model ranks or grades a held-out split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from rankfold.cli.console import console, print_json, print_table, progress
from rankfold.cli.options import Data, Json, Model, Quiet

if TYPE_CHECKING:
    from rich.console import Console

    from rankfold.tasks.evaluate import Evaluation, Stratum
    from rankfold.tasks.evaluate_graded import GradedEvaluation

DEFAULT = "ndcg@10,mrr@10,recall@20,hit@10,coverage@10"
GRADED = "tpr@fpr=.01,tpr@fpr=.05,tpr@fpr=.1,pauc@fpr=.1,auc,order"
SAMPLES = 1000
PROPENSITY = "0.55,1.5"


def command(
    model: Model,
    data: Data,
    *,
    split: Annotated[str, typer.Option(help="validation or test.")] = "test",
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME",
            help=f"Names with a cut-off, {DEFAULT} unless told; of graded rows with a "
            f"false-positive rate, {GRADED}.",
        ),
    ] = None,
    propensity: Annotated[
        str | None,
        typer.Option(
            metavar="A,B", help=f"Of the propensities of psp and psn, {PROPENSITY} unless told."
        ),
    ] = None,
    strata: Annotated[
        bool, typer.Option("--strata", help="Also by how frequent the positives are in train.")
    ] = False,
    bootstrap: Annotated[
        int | None,
        typer.Option(
            metavar="N", help=f"Samples for the intervals of graded rows, {SAMPLES} unless told."
        ),
    ] = None,
    calibration: Annotated[
        int | None,
        typer.Option(
            metavar="BINS",
            help="Of graded rows: also how the share above each grade grows with the score.",
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the bootstrap, 0 unless told.")] = None,
    index: Annotated[
        str, typer.Option(metavar="NAME", help="What searches vectors, as `search` takes it.")
    ] = "exact",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Rank all candidates for every query of a split, or grade its rows, and measure how well."""
    from rankfold.metrics import parse_propensity
    from rankfold.models.grader import load
    from rankfold.tasks.evaluate import evaluate
    from rankfold.tasks.evaluate_graded import GradedEvaluation

    names = None if metrics is None else [name for name in metrics.split(",") if name.strip()]
    asked = {"samples": bootstrap, "calibration": calibration, "seed": seed}
    given = None if propensity is None else parse_propensity(propensity)
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
            **{name: value for name, value in asked.items() if value is not None},
        )
    if json:
        print_json(result.to_json())
        return
    title, out = f"{model} on {data}, {split}", console(quiet=quiet)
    if isinstance(result, GradedEvaluation):
        _show_graded(result, title, out)
    else:
        _show_ranking(result, title, out)


def _show_ranking(result: Evaluation, title: str, out: Console) -> None:
    rows = [[name, f"{value:.4f}"] for name, value in result.metrics.items()]
    print_table(title, ["metric", "mean"], rows, out)
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
            f"{result.trained_on:,} pairs of the {result.split} split were among those "
            "that the model was fitted on: these figures are too high",
            style="yellow",
        )


def _show_graded(result: GradedEvaluation, title: str, out: Console) -> None:
    columns = ["metric", "mean", "interval", *(f"> {name}" for name in result.grades[:-1])]
    rows = []
    for name, mean in result.metrics.items():
        ends = result.intervals.get(name)
        interval = "-" if ends is None else f"{ends[0]:.4f} to {ends[1]:.4f}"
        rows.append([name, f"{mean:.4f}", interval, *_cells(result, result.thresholds.get(name))])
    print_table(title, columns, rows, out)
    _print_operating(result, out)
    _print_calibration(result, out)
    without = f"; {result.without_grade:,} without a grade" if result.without_grade else ""
    out.print(f"{result.queries:,} rows{without}; > g: rows above grade g against the others")
    for caution in result.cautions:
        out.print(caution, style="yellow")
    if result.trained_on:
        out.print(
            f"{result.trained_on:,} rows of the {result.split} split equal rows that the model was "
            "fitted on: where they are the same ones, these figures are too high",
            style="yellow",
        )


def _print_operating(result: GradedEvaluation, out: Console) -> None:
    """What the model's own cuts, which `predict` uses, let pass."""
    if not result.operating:
        return
    rows = [
        [f"{entry.fpr:g}", what, *_cells(result, values)]
        for entry in result.operating
        for what, values in (("fpr", entry.false_positives), ("tpr", entry.true_positives))
    ]
    columns = ["asked", "got", *(f"> {name}" for name in result.grades[:-1])]
    title = f"by the cuts of the model, made on {result.operating_on}"
    print_table(title, columns, rows, out, left=2)
    if result.operating_on == "train":
        from rankfold.models.grader import CUTS_OF_TRAIN

        out.print(CUTS_OF_TRAIN, style="yellow")


def _print_calibration(result: GradedEvaluation, out: Console) -> None:
    """A row per bin: the thresholds have the same bins, for they part the rows by score alone."""
    if not result.calibration:
        return
    rows = [
        [f"{bins[0]['score']:.4f}", f"{bins[0]['rows']:,}", *(f"{b['share']:.4f}" for b in bins)]
        for bins in zip(*result.calibration, strict=True)
    ]
    columns = ["mean score", "rows", *(f"> {name}" for name in result.grades[:-1])]
    print_table("the share of rows above each grade, by score", columns, rows, out, left=0)


def _cells(result: GradedEvaluation, values: Sequence[float | None] | None) -> list[str]:
    found = [None] * (len(result.grades) - 1) if values is None else values
    return ["-" if value is None else f"{value:.4f}" for value in found]


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
