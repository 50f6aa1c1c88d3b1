"""``rankfold compare``: methods on the same data with the same budget, seeds and tests."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankfold.cli.console import console, print_json, print_table, progress
from rankfold.cli.dry_run import show_outline
from rankfold.cli.options import Data, DryRun, Json, Quiet, given, option, takes, with_settings
from rankfold.errors import UserError, pluralize
from rankfold.interrupts import INTERRUPTED
from rankfold.tasks.options import CompareOptions

if TYPE_CHECKING:
    from rich.console import Console


@with_settings(CompareOptions, metavar={"budget": "TIME", "metrics": "NAME,NAME"}, unset=True)
def command(
    data: Data,
    *,
    methods: Annotated[
        str | None,
        takes(
            "NAME,NAME",
            "Names from `rankfold methods`; NAME=METHOD renames one, METHOD@100 starts its "
            "seeds at 100. Default: those of the protocol; for graded rows trees and networks with "
            "and without the rate in their loss.",
        ),
    ] = None,
    out: Annotated[Path, option(CompareOptions, "out", metavar="DIR")],
    protocol: Annotated[
        str | None,
        takes(
            "NAME",
            "A published comparison, whose options are defaults. "
            "{rankfold.tasks.compare.protocols:PROTOCOLS}.",
        ),
    ] = None,
    sweep: Annotated[
        str | None, takes("KEY=VALUE,VALUE", "Run each method with each value of this setting.")
    ] = None,
    set: Annotated[
        list[str] | None, takes("METHOD.KEY=VALUE", "A fixed setting, which is not tuned.")
    ] = None,
    dry_run: DryRun = False,
    json: Json = False,
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Tune, fit and test methods in the same way; write results.json, results.csv, report.html.

    Without --trials or --budget every method has its defaults. The same command resumes a stopped
    comparison.
    """
    from rankfold.tasks.compare import compare
    from rankfold.tasks.compare.plan import parse_settings, parse_sweep

    say = console(quiet=quiet or json)
    options = given(options) | {"out": out, "protocol": protocol}
    options |= {"sweep": parse_sweep(sweep), "settings": parse_settings(set or [])}
    if dry_run:
        from rankfold.tasks.dry_run.compare import outline_compare

        return show_outline(outline_compare(data, methods, **options), json=json, quiet=quiet)
    try:
        with progress(quiet=quiet or json) as callback:
            results = compare(data, methods, **options, progress=callback)
    except KeyboardInterrupt:
        say.print(f"stopped: the same command resumes the comparison in {out}")
        raise typer.Exit(INTERRUPTED) from None
    page = write_page(results, out / "report.html", say)
    if json:
        print_json(results)
    else:
        show(results, say)
        written = [out / "results.json", out / "results.csv", *([page] if page else [])]
        say.print(f"written: {', '.join(map(str, written))}")
    errors = [method["error"] for method in results["methods"]]
    if all(error is not None for error in errors):
        raise UserError("every method failed", hint=str(errors[0]["hint"]))


def write_page(results: Mapping[str, Any], path: Path, say: "Console") -> Path | None:
    """Write the report if jinja2 is installed."""
    try:
        from rankfold.report.compare import write
    except ImportError:
        say.print(f"{path} needs jinja2: pip install 'rankfold[report]'")
        return None
    write(dict(results), path)
    return path


def show(results: Mapping[str, Any], say: "Console") -> None:
    """One row per method, best first; a star marks the best and ties with it."""
    from rankfold.report.published import published_figures
    from rankfold.report.summary import ranked

    metrics, done = results["metrics"], ranked(results)
    rows = [
        [
            method["name"],
            *(_cell(results, method, metric) for metric in metrics),
            f"{sum(method['fit_seconds']) / len(method['fit_seconds']):.1f}",
        ]
        for method in done
    ]
    published = published_figures(results) if done else None
    for name, source, cells in published.rows if published else ():
        rows.append([f"{name}, published [{source}]", *cells, ""])
    if rows:
        seeds = pluralize(len(results["seeds"]), "seed")
        width = f", width {results['width']}" if results["width"] else ""
        title = f"{results['data']['name']}, {results['split']}{width}, means over {seeds}"
        print_table(title, ["method", *metrics, "fit, s"], rows, say)
        over = "rows" if results["data"]["kind"] == "graded" else "queries"
        say.print(f"* best or tied with the best: p >= .05 over {over} or seeds, paired, Holm")
        say.print(f"± half of the 95% interval over {results['queries']:,} {over}")
    for line in published.notes if published else ():
        say.print(line)
    for method in results["methods"]:
        if (error := method["error"]) is not None:
            say.print(f"{method['name']} failed: {error['message']}", style="yellow")
            say.print(f"  hint: {error['hint']}")


def _cell(results: Mapping[str, Any], method: Mapping[str, Any], metric: str) -> str:
    """The mean; the first metric also has half of its interval; there is no room for others."""
    value, test = method["metrics"][metric], results["tests"].get(metric)
    star = ""
    if test is not None:
        tied = test["others"].get(method["name"], {"tied": True})["tied"]  # the best is not listed
        star = "*" if tied else " "
    wide = metric == results["metrics"][0] and value["low"] is not None
    around = f" ±{(value['high'] - value['low']) / 2:.4f}" if wide else ""
    return f"{value['mean']:.4f}{star}{around}"
