"""``rankfold fit``: fit a model to prepared data and write it to a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankfold.cli.console import console, print_json, progress
from rankfold.cli.dry_run import show_outline
from rankfold.cli.info import describe_addition
from rankfold.cli.options import Data, DryRun, Json, MethodName, Quiet, takes, with_settings
from rankfold.errors import UserError
from rankfold.interrupts import INTERRUPTED
from rankfold.tasks.options import FitOptions

if TYPE_CHECKING:
    from rich.console import Console

    from rankfold.types import Method, Model


Add = Annotated[
    Path | None,
    typer.Option(help="Then `rankfold add` these pairs; an existing MODEL is not fitted again."),
]
From = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="MODEL",
        help="Start from this model, for siamesexml: its encoder, and the vectors of candidates "
        "that it and the data have.",
    ),
]
Track = Annotated[
    str | None, takes("TOOL:DIR", "Also log each step to csv:DIR, tensorboard:DIR or mlflow:DIR.")
]


@with_settings(FitOptions, omit=["memory_budget"], metavar={"candidate_memory": "BYTES"})
def command(
    method: MethodName,
    data: Data,
    *,
    out: Annotated[Path, takes("MODEL", "The folder to write.")],
    config: Annotated[Path | None, takes("F.toml", "Settings of the method as TOML.")] = None,
    set: Annotated[list[str] | None, takes("KEY=VALUE", "One setting; overrides --config.")] = None,
    from_model: From = None,
    add: Add = None,
    track: Track = None,
    dry_run: DryRun = False,
    json: Json = False,
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Fit a model to prepared data; Ctrl-C keeps the last checkpoint for --resume."""
    from rankfold import config as settings
    from rankfold.distributed.connection import connect
    from rankfold.methods import find_method
    from rankfold.tasks.fit import fit
    from rankfold.tasks.fit.progress import reporter
    from rankfold.tasks.update import fit_and_add
    from rankfold.training.checkpoint import exists as has_checkpoint
    from rankfold.training.checkpoint import path_of
    from rankfold.training.tracking import combine, tracked

    given: dict[str, Any] = settings.read(config) if config else {}
    given |= settings.parse_words(set or [])
    settings.check_names(find_method(method).config, given)
    if add is not None and connect().size > 1:
        raise UserError("--add works in one process only", hint="start it without torchrun")
    options["from_model"] = from_model
    if dry_run:
        from rankfold.tasks.dry_run.fit import outline_fit

        options |= {**given, "out": out}
        outline = outline_fit(method, data, add=add, track=track, **options)
        return show_outline(outline, json=json, quiet=quiet)
    say, checkpoint = console(quiet=quiet or json), path_of(out)
    finished = announce(out, checkpoint, say, resume=options["resume"], adds=add is not None)
    shared = {name: options[name] for name in ("seed", "refit")}
    logged = {"method": method, "data": str(data), **shared, **given}
    where, score = track if connect().rank == 0 else None, options["metric"] or "score"
    try:
        with (
            progress(quiet=quiet or json) as callback,
            tracked(where, method, logged, metric=score) as log,
        ):
            report = combine(reporter(callback, score), log)
            options |= {**given, "out": out, "report": report}
            fitted = (
                fit_and_add(method, data, add, **options) if add else fit(method, data, **options)
            )
    except KeyboardInterrupt:
        saved = f"continue from {checkpoint} with --resume"
        hint = saved if has_checkpoint(checkpoint) else "there is no checkpoint yet"
        say.print(f"stopped: {hint}")
        raise typer.Exit(INTERRUPTED) from None
    notes = fitted.model.notes
    if json:
        print_json({"model": str(out), "method": method, "notes": dict(notes)})
        return
    if finished and add is None:
        say.print(f"{out} was already finished: nothing to do")
    if add is not None:
        say.print(describe_addition(notes["added"][-1]))
    say.print(f"{out}: {method}, {describe_choice(find_method(method), fitted.model)}")
    describe_cut(fitted.model, options["seconds"], say)


def describe_choice(method: Method, model: Model) -> str:
    """What a method says of its model, or which step was kept."""
    choice = method.describe(model)
    if choice is None and method.self_tuning:
        return "with the given settings"
    return choice or describe_step(model.notes, model.notes["metric"])


def describe_cut(model: Model, given: float | None, say: Console) -> None:
    """Say that ``--seconds`` cut the fit off, or that it could not."""
    from rankfold.methods import find_method
    from rankfold.tasks.fit.progress import cut_after

    if (limit := cut_after(model.notes["history"])) is not None:
        why = f"cut off after {limit:g} s (--seconds): more time may give better scores"
        say.print(f"  {why}", style="yellow")
    elif find_method(model.method).self_tuning and given is not None:
        own = f"{model.method} selects its own settings"
        why = f"{own} and is never cut off: --seconds had no effect"
        say.print(f"  {why}", style="yellow")


def announce(out: Path, checkpoint: Path, say: Console, *, resume: bool, adds: bool) -> bool:
    """Say what becomes of an existing model or checkpoint; whether the model is finished."""
    from rankfold.tasks.update import exists
    from rankfold.training.checkpoint import exists as has_checkpoint

    finished = resume and exists(out) and not has_checkpoint(checkpoint)
    if adds and exists(out):
        say.print(f"{out} exists: pairs are added, it is not fitted again")
    elif has_checkpoint(checkpoint) and not resume:
        say.print(f"{checkpoint} of an unfinished fit will be replaced", style="yellow")
    elif resume and not finished and not has_checkpoint(checkpoint):
        say.print(f"there is no checkpoint {checkpoint}: starting from the beginning")
    return finished


def describe_step(notes: Mapping[str, Any], metric: str) -> str:
    """The step whose model was kept, and how it was selected."""
    from rankfold.training.early_stopping import validation_score

    score = validation_score(notes)
    if score is not None:
        last = "" if notes.get("is_chosen", True) else ", the last"
        return f"step {notes['chosen']}{last}, validation {metric} {score:.4f}"
    rows = "rows" if "operating_on" in notes else "pairs"
    return f"step {notes['chosen']}, the last: no validation {rows} to choose by"
