"""``rankfold evaluate``: how well a model ranks or grades a held-out split."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankfold.cli.console import console, print_json, print_table, progress
from rankfold.cli.dry_run import show_outline
from rankfold.cli.options import Data, DryRun, Json, Model, Quiet, given, takes, with_settings
from rankfold.cli.search import AtMost, parse_quotas
from rankfold.errors import UserError
from rankfold.tasks.options import (
    DEFAULT_METRICS,
    GRADED_DEFAULTS,
    SET_DEFAULTS,
    Certainty,
    ListOptions,
)

if TYPE_CHECKING:
    from rich.console import Console

    from rankfold.tasks.evaluate_graded import GradedEvaluation
    from rankfold.tasks.evaluate_ranking import Evaluation
    from rankfold.tasks.metric_totals import Stratum

_REPORT_BINS = 10
Metrics = Annotated[
    str | None,
    takes(
        "NAME,NAME",
        f"Metrics with a cut-off; default: {','.join(DEFAULT_METRICS)}, for a model with "
        f"thresholds also {','.join(SET_DEFAULTS)}. For graded rows, "
        f"metrics with a false-positive rate; default: {','.join(GRADED_DEFAULTS)}.",
    ),
]


@with_settings(
    ListOptions,
    Certainty,
    omit=["memory_budget"],
    metavar={
        "propensity": "A,B",
        "index": "NAME",
        "diversity": "D",
        "thresholds": "GOAL",
        "bootstrap": "N",
        "calibration": "BINS",
        "confidence": "SHARE",
        "costs": "A,B",
    },
    unset=True,
)
def command(
    model: Model,
    data: Data,
    *,
    split: Annotated[str, typer.Option(help="validation or test.")] = "test",
    metrics: Metrics = None,
    at_most: AtMost = None,
    report: Annotated[
        Path | None,
        takes("F.html", "For graded rows, also write a page with cuts, probabilities and costs."),
    ] = None,
    card: Annotated[
        bool, typer.Option("--card", help="Also write the result into README.md of the model.")
    ] = False,
    dry_run: DryRun = False,
    json: Json = False,
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Measure a model: rank all candidates for every query of a split, or grade its rows."""
    from rankfold.models.load import load
    from rankfold.tasks.evaluate import evaluate
    from rankfold.tasks.evaluate_graded import GradedEvaluation

    loaded = load(model)
    if report is not None:
        _check_report(loaded, report)
        options["calibration"] = options.get("calibration") or _REPORT_BINS
    names = None if metrics is None else [name for name in metrics.split(",") if name.strip()]
    asked = {"split": split, "metrics": names, "at_most": parse_quotas(at_most), **given(options)}
    if dry_run:
        from rankfold.tasks.dry_run.evaluate import outline_evaluate

        outline = outline_evaluate(model, loaded, data, report=report, **asked)
        return show_outline(outline, json=json, quiet=quiet)
    with progress(quiet=quiet or json) as callback:
        result = evaluate(loaded, data, progress=callback, **asked)
    if report is not None:
        from rankfold.report.evaluation import write

        write(result.to_json(), f"{model.name} on {data.name}", report)
    if card:
        from rankfold.tasks.card import add_to_card

        add_to_card(model, result)
    if json:
        return print_json(result.to_json())
    title, out = f"{model} on {data}, {split}", console(quiet=quiet)
    if isinstance(result, GradedEvaluation):
        _show_graded(result, title, out)
    else:
        _show_ranking(result, title, out)
    if report is not None:
        out.print(f"Open the report in a browser: {report}")


def _check_report(model: Any, path: Path) -> None:
    """A UserError, before long work, if there can be no report."""
    from rankfold.models.grader import Grader
    from rankfold.storage import check_destination

    if not isinstance(model, Grader):
        raise UserError(
            "--report is for models that grade", hint="`rankfold compare` reports on rankers"
        )
    check_destination(path)
    if find_spec("jinja2") is None:
        raise UserError("--report needs jinja2", hint="pip install 'rankfold[report]'")


def _show_ranking(result: Evaluation, title: str, out: Console) -> None:
    rows, columns = [[name, f"{value:.4f}"] for name, value in result.metrics.items()], ["mean"]
    if result.by_score is not None:
        rows = [[*row, *_price(result, row[0])] for row in rows]
        columns = ["by the rules", "by score", "change"]
    print_table(title, ["metric", *columns], rows, out)
    if result.strata:
        _print_strata(result.strata, out)
    if result.propensity is not None:
        a, b = result.propensity
        out.print(f"propensities of psp and psn: A = {a:g}, B = {b:g}")
    if result.thresholds is not None:
        out.print(f"f1, precision and recall: of the results at thresholds for {result.thresholds}")
    left_out = f"{result.without_positive:,} without a pair in the split are left out"
    unknown = f", {result.unknown:,} unknown to the model" if result.unknown else ""
    out.print(f"{result.queries:,} queries; {left_out}{unknown}")
    if result.trained_on:
        out.print(
            f"the model was fitted on {result.trained_on:,} pairs of the {result.split} split: "
            "these figures are too high",
            style="yellow",
        )


def _price(result: Evaluation, metric: str) -> tuple[str, str]:
    """A metric of the lists by score, and how much the rules change it."""
    before = (result.by_score or {})[metric]
    change = f"{(result[metric] - before) / before:+.1%}" if before else "-"
    return f"{before:.4f}", change


def _show_graded(result: GradedEvaluation, title: str, out: Console) -> None:
    above = [f"> {name}" for name in result.grades[:-1]]
    rows = []
    for name, mean in result.metrics.items():
        ends = result.intervals.get(name)
        interval = "-" if ends is None else f"{ends[0]:.4f} to {ends[1]:.4f}"
        rows.append([name, f"{mean:.4f}", interval, *_cells(result, result.thresholds.get(name))])
    print_table(title, ["metric", "mean", "interval", *above], rows, out)
    if result.operating:
        _print_operating(result, above, out)
    if result.calibration:  # all thresholds have the same bins: they divide the rows by score
        rows = [
            [
                f"{bins[0]['score']:.4f}",
                f"{bins[0]['rows']:,}",
                *(f"{b['share']:.4f}" for b in bins),
            ]
            for bins in zip(*result.calibration, strict=True)
        ]
        title = "the share of rows above each grade, by score"
        print_table(title, ["mean score", "rows", *above], rows, out, left=0)
    if result.calibration_errors:
        errors = ", ".join(
            f"{error:.4f} {name}"
            for error, name in zip(result.calibration_errors, above, strict=True)
        )
        out.print(f"calibration error of the probabilities (10 bins): {errors}")
    if result.costs:
        _print_costs(result, above, out)
    without = f"; {result.without_grade:,} without a grade" if result.without_grade else ""
    out.print(f"{result.queries:,} rows{without}; > g: rows above grade g against the others")
    for caution in result.cautions:
        out.print(caution, style="yellow")
    if result.trained_on:
        out.print(
            f"{result.trained_on:,} rows of the {result.split} split equal rows that the model was "
            "fitted on: if they are the same rows, these figures are too high",
            style="yellow",
        )


def _print_operating(result: GradedEvaluation, above: Sequence[str], out: Console) -> None:
    """The rates of the model's own cuts, which `predict` uses."""
    rows = [
        [
            f"{entry.fpr:g}",
            "on average" if entry.confidence is None else f"{entry.confidence:g}",
            what,
            *map(_with_interval, values, intervals),
        ]
        for entry in result.operating
        for what, values, intervals in (
            ("fpr", entry.false_positives, entry.false_positive_intervals),
            ("tpr", entry.true_positives, entry.true_positive_intervals),
        )
    ]
    title = f"rates at the cuts of the model, chosen on {result.operating_on} rows"
    print_table(title, ["fpr limit", "confidence", "measured", *above], rows, out, left=3)
    if all(entry.confidence is None for entry in result.operating):
        out.print("no rate is promised: see `rankfold predict --confidence`")
    if result.operating_on == "train":
        from rankfold.models.cuts import CUTS_OF_TRAIN

        out.print(CUTS_OF_TRAIN, style="yellow")


def _print_costs(result: GradedEvaluation, above: Sequence[str], out: Console) -> None:
    """The expected cost per row, and that of the two rules that look at no row."""
    costs = result.costs
    rows = [
        [what, *(f"{entry[name]:.4g}" for entry in costs["thresholds"])]
        for name, what in (
            ("cost", f"probability above {costs['probability']:.3g} passes"),
            ("none", "no row passes"),
            ("all", "every row passes"),
        )
    ]
    title = f"cost per row: {costs['false_alarm']:g} a false alarm, {costs['miss']:g} a miss"
    print_table(title, ["rule", *above], rows, out)


def _with_interval(value: float | None, ends: tuple[float, float] | None) -> str:
    """A rate above its interval: in one line, three thresholds do not fit into 80 characters."""
    return "-" if value is None or ends is None else f"{value:.3f}\n{ends[0]:.3f}-{ends[1]:.3f}"


def _cells(result: GradedEvaluation, values: Sequence[float | None] | None) -> list[str]:
    cells = [None] * (len(result.grades) - 1) if values is None else values
    return ["-" if value is None else f"{value:.4f}" for value in cells]


def _print_strata(strata: Sequence[Stratum], out: Console) -> None:
    """A column per group of candidates, since there may be many metrics."""
    rows = [
        [what, *(f"{getattr(part, what.replace(' ', '_')):,}" for part in strata)]
        for what in ("candidates", "train pairs", "queries")
    ]
    for name in dict.fromkeys(name for part in strata for name in part.metrics):
        values = (part.metrics.get(name) for part in strata)
        rows.append([name, *("-" if value is None else f"{value:.4f}" for value in values)])
    columns = ["positives", *(part.name for part in strata)]
    print_table("by frequency in train", columns, rows, out)
