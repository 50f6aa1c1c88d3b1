"""``rankfold tune``: search for the settings of a method that are best on validation."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankfold.cli.console import console, print_json, print_table, progress
from rankfold.cli.options import Data, Device, Json, Quiet
from rankfold.interrupts import INTERRUPTED

if TYPE_CHECKING:
    from rich.console import Console

    from rankfold.tasks.tune import Tuned
    from rankfold.tasks.tune.plan import Trial

SHOWN = 10  # trials in the table


def command(
    method: Annotated[str, typer.Argument(help="A name from `rankfold methods`.")],
    data: Data,
    *,
    out: Annotated[Path, typer.Option(help="The folder to write; a search that is there goes on.")],
    trials: Annotated[
        int | None, typer.Option(help="At most so many; 20 if there is no budget either.")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Time for all trials together: 120s, 2m, 1h.", metavar="TIME"),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="The validation score; ndcg@10 or, for graded rows, pauc@fpr=0.1; of a method "
            "with a setting fpr, pauc up to twice that."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the search, and of every fit.")] = 0,
    space: Annotated[
        str, typer.Option(help="usual, or paper: the grid that the method's paper states.")
    ] = "usual",
    set: Annotated[
        list[str] | None,
        typer.Option(help="A setting that is not searched.", metavar="KEY=VALUE"),
    ] = None,
    device: Device = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Search for better settings; Ctrl-C keeps what is done, the same command goes on."""
    from rankfold import config as settings
    from rankfold.tasks.fit import find_method
    from rankfold.tasks.tune import tune

    fixed: dict[str, Any] = dict(settings.parse_words(set or []))
    settings.check_names(find_method(method).config, fixed)
    say = console(quiet=quiet or json)
    try:
        with progress(quiet=quiet or json) as tell:
            how: dict[str, Any] = {"trials": trials, "budget": budget, "metric": metric}
            how |= {"seed": seed, "space": space, "fixed": fixed, "device": device, "report": tell}
            tuned = tune(method, data, out=out, **how)
    except KeyboardInterrupt:
        say.print(f"stopped: the same command goes on with what is in {out}")
        raise typer.Exit(INTERRUPTED) from None
    if json:
        print_json(_document(method, out, tuned))
        return
    _show(say, method, out, tuned)


def _document(method: str, out: Path, tuned: Tuned) -> dict[str, Any]:
    return {
        "method": method,
        "metric": tuned.metric,
        "score": tuned.score,
        "settings": dict(tuned.settings),
        "trial": tuned.best.number,
        "model": str(out / "model"),
        "config": str(out / "best.toml"),
        "trials": [asdict(trial) for trial in tuned.trials],
    }


def _show(say: Console, method: str, out: Path, tuned: Tuned) -> None:
    """The best trials, how the others ended, and what to do next."""
    from rankfold.tasks.fit import find_method

    trials = sorted(tuned.trials, key=_rank)
    searched = list(tuned.best.settings)
    columns = ["trial", "", tuned.metric, "steps", "seconds", *searched]
    rows = [
        [str(trial.number), trial.state, _number(trial.score), str(trial.steps)]
        + [f"{trial.seconds:.1f}"]
        + [_number(trial.settings.get(name)) for name in searched]
        for trial in trials[:SHOWN]
    ]
    title = f"{method}: trials, the best first ({len(rows)} of {len(trials)})"
    print_table(title, columns, rows, say, left=2)
    if not searched:
        itself = "chooses its own settings on validation"
        why = itself if find_method(method).self_tuning else "has nothing to search"
        say.print(f"{method} {why}: it was fitted once")
    counts = Counter(trial.state for trial in trials)
    if counts["pruned"]:
        say.print(f"{counts['pruned']} were cut short because others were better by then")
    if counts["failed"]:
        first = next(trial.message for trial in tuned.trials if trial.state == "failed")
        say.print(f"{counts['failed']} failed, the first one: {first}", style="yellow")
    say.print(f"{out / 'model'} is the model of trial {tuned.best.number}, {out / 'best.toml'} its")
    say.print(f"settings: rankfold fit {method} DATA --config {out / 'best.toml'} --out MODEL")


def _rank(trial: Trial) -> tuple[bool, float, int]:
    score = float("-inf") if trial.score is None else trial.score
    return trial.state != "complete", -score, trial.number


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
