"""``rankfold compare``: methods on the same data, with the same budget, seeds and tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankfold.cli.console import console, print_json, print_table, progress
from rankfold.cli.options import Data, Device, Json, Quiet
from rankfold.errors import UserError
from rankfold.interrupts import INTERRUPTED

if TYPE_CHECKING:
    from rich.console import Console


def command(
    data: Data,
    *,
    methods: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME",
            help="From `rankfold methods`; NAME=METHOD for a name of your own, METHOD@100 for "
            "seeds from 100 on.",
        ),
    ],
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="For the results; one begun before is gone on with.")
    ],
    trials: Annotated[
        int | None, typer.Option(metavar="N", help="Tune each method with so many fits.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="120s", help="Tune each method for so long: 120s, 5m, 1h.")
    ] = None,
    seeds: Annotated[
        int, typer.Option(metavar="N", help="Fits of each method that are tested.")
    ] = 1,
    metrics: Annotated[
        str | None, typer.Option(metavar="NAME,NAME", help="As of `rankfold evaluate`.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="The validation score to choose by; as of `rankfold fit`.")
    ] = None,
    refit: Annotated[
        bool, typer.Option(help="Fit what was chosen again, on train and validation.")
    ] = True,
    sweep: Annotated[
        str | None,
        typer.Option(
            metavar="KEY=VALUE,VALUE", help="Each method with each of these values of a setting."
        ),
    ] = None,
    set: Annotated[
        list[str] | None,
        typer.Option(metavar="METHOD.KEY=VALUE", help="One setting, which is not tuned."),
    ] = None,
    device: Device = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Tune, fit and test methods alike; write results.json, results.csv and report.html.

    Without --trials or --budget every method has its defaults. The same command goes on where it
    was stopped.
    """
    from rankfold.tasks.compare import compare
    from rankfold.tasks.compare.plan import parse_settings, parse_sweep

    say = console(quiet=quiet or json)
    how: dict[str, Any] = {"out": out, "trials": trials, "budget": budget, "seeds": seeds}
    how |= {"metrics": metrics, "metric": metric, "refit": refit, "device": device}
    how |= {"sweep": parse_sweep(sweep), "settings": parse_settings(set or [])}
    try:
        with progress(quiet=quiet or json) as tell:
            results = compare(data, methods, **how, progress=tell)
    except KeyboardInterrupt:
        say.print(f"stopped: the same command goes on with what {out} holds")
        raise typer.Exit(INTERRUPTED) from None
    page = _write_page(results, out / "report.html", say)
    if json:
        print_json(results)
    else:
        _show(results, say)
        written = [out / "results.json", out / "results.csv", *([page] if page else [])]
        say.print(f"written: {', '.join(map(str, written))}")
    _check_any(results)


def _check_any(results: Mapping[str, Any]) -> None:
    """A UserError where every method failed."""
    errors = [method["error"] for method in results["methods"]]
    if all(error is not None for error in errors):
        raise UserError("no method could be fitted", hint=str(errors[0]["hint"]))


def _write_page(results: Mapping[str, Any], path: Path, say: Console) -> Path | None:
    """The report, if what it needs is installed."""
    try:
        from rankfold.report.compare import write
    except ImportError:
        say.print(f"without jinja2 there is no {path}: pip install 'rankfold[report]'")
        return None
    write(dict(results), path)
    return path


def _show(results: Mapping[str, Any], say: Console) -> None:
    """A row per method, the best by the first metric on top; a star: tied with the best."""
    metrics, methods = results["metrics"], results["methods"]
    done = [method for method in methods if method["error"] is None]
    done.sort(key=lambda method: -method["metrics"][metrics[0]]["mean"])
    rows = [
        [
            method["name"],
            *(_cell(results, method, metric) for metric in metrics),
            f"{sum(method['fit_seconds']) / len(method['fit_seconds']):.1f}",
        ]
        for method in done
    ]
    if rows:
        title = f"{results['data']['name']}, {results['split']}, means over {_seeds(results)}"
        print_table(title, ["method", *metrics, "fit, s"], rows, say)
        over = "rows" if results["data"]["kind"] == "graded" else "queries"
        say.print(f"* the best, or tied with it: p >= .05 over {over} or over seeds, paired, Holm")
        say.print(f"± half of the 95 % interval over {results['queries']:,} {over}")
    for method in methods:
        if method["error"] is not None:
            error = method["error"]
            say.print(f"{method['name']} failed: {error['message']}", style="yellow")
            say.print(f"  hint: {error['hint']}")


def _seeds(results: Mapping[str, Any]) -> str:
    n = len(results["seeds"])
    return "1 seed" if n == 1 else f"{n} seeds"


def _cell(results: Mapping[str, Any], method: Mapping[str, Any], metric: str) -> str:
    """The mean; of the first metric with half of its interval, for which others have no room."""
    value, test = method["metrics"][metric], results["tests"].get(metric)
    star = ""
    if test is not None:
        tied = test["others"].get(method["name"], {"tied": True})["tied"]  # the best is no other
        star = "*" if tied else " "
    wide = metric == results["metrics"][0] and value["low"] is not None
    around = f" ±{(value['high'] - value['low']) / 2:.4f}" if wide else ""
    return f"{value['mean']:.4f}{star}{around}"
