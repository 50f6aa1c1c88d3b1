"""``rankfold tune``: search for the settings of a method that score best on validation."""

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankfold.cli.console import console, print_json, print_table, progress
from rankfold.cli.dry_run import show_outline
from rankfold.cli.options import Data, DryRun, Json, MethodName, Quiet, option, takes, with_settings
from rankfold.interrupts import INTERRUPTED
from rankfold.tasks.options import TuneOptions

if TYPE_CHECKING:
    from rich.console import Console

    from rankfold.tasks.tune import TuneResult

_MAX_ROWS = 10  # trials in the table


@with_settings(TuneOptions, metavar={"budget": "TIME"})
def command(
    method: MethodName,
    data: Data,
    *,
    out: Annotated[Path, option(TuneOptions, "out", metavar="DIR")],
    set: Annotated[
        list[str] | None, takes("KEY=VALUE", "A fixed setting, which is not searched.")
    ] = None,
    dry_run: DryRun = False,
    json: Json = False,
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Search for better settings; Ctrl-C keeps the trials, and the same command resumes."""
    from rankfold import config as settings
    from rankfold.methods import find_method
    from rankfold.tasks.tune import tune

    fixed: dict[str, Any] = dict(settings.parse_words(set or []))
    settings.check_names(find_method(method).config, fixed)
    if dry_run:
        from rankfold.tasks.dry_run.tune import outline_tune

        outline = outline_tune(method, data, out=out, **options, fixed=fixed)
        return show_outline(outline, json=json, quiet=quiet)
    say = console(quiet=quiet or json)
    try:
        with progress(quiet=quiet or json) as callback:
            result = tune(method, data, out=out, **options, fixed=fixed, report=callback)
    except KeyboardInterrupt:
        say.print(f"stopped: the same command resumes the search in {out}")
        raise typer.Exit(INTERRUPTED) from None
    if json:
        print_json(_document(method, out, result))
        return
    _show(say, method, out, result)


def _document(method: str, out: Path, result: "TuneResult") -> dict[str, Any]:
    return {
        "method": method,
        "metric": result.metric,
        "score": result.score,
        "settings": dict(result.settings),
        "trial": result.best.number,
        "model": str(out / "model"),
        "config": str(out / "best.toml"),
        "trials": [asdict(trial) for trial in result.trials],
    }


def _show(say: "Console", method: str, out: Path, result: "TuneResult") -> None:
    """The best trials, the number of pruned and failed ones, and the next command."""
    from rankfold.methods import find_method

    by_score = sorted(result.trials, key=lambda one: -(one.score or 0.0))
    trials = sorted(by_score, key=lambda one: one.state != "complete")
    searched = list(result.best.settings)
    columns = ["trial", "", result.metric, "steps", "seconds", *searched]
    rows = [
        [str(trial.number), trial.state, _number(trial.score), str(trial.steps)]
        + [f"{trial.seconds:.1f}"]
        + [_number(trial.settings.get(name)) for name in searched]
        for trial in trials[:_MAX_ROWS]
    ]
    title = f"{method}: {len(rows)} of {len(trials)} trials, best first"
    print_table(title, columns, rows, say, left=2)
    if not searched:
        tunes = find_method(method).self_tuning
        why = "selects its own settings on validation" if tunes else "has nothing to search"
        say.print(f"{method} {why}: it was fitted once")
    counts = Counter(trial.state for trial in trials)
    if counts["pruned"]:
        say.print(f"{counts['pruned']} pruned, because other trials were better at the same step")
    if counts["failed"]:
        first = next(trial.message for trial in result.trials if trial.state == "failed")
        say.print(f"{counts['failed']} failed, the first with: {first}", style="yellow")
    say.print(f"{out / 'model'}: the model of trial {result.best.number}")
    say.print(
        f"fit its settings: rankfold fit {method} DATA --config {out / 'best.toml'} --out MODEL"
    )


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
