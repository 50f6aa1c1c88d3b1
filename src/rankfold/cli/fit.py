"""``rankfold fit``: learn a model from prepared data and write it to a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankfold.cli.console import AsJson, Quiet, Tell, console, print_json, progress
from rankfold.cli.info import describe_addition
from rankfold.interrupts import INTERRUPTED

if TYPE_CHECKING:
    from rankfold.training.history import History, Report
    from rankfold.types import Step


def command(
    method: Annotated[str, typer.Argument(help="A name from `rankfold methods`.")],
    data: Annotated[Path, typer.Argument(help="A folder written by `rankfold prepare`.")],
    *,
    out: Annotated[Path, typer.Option(help="The folder to write.", metavar="MODEL")],
    config: Annotated[
        Path | None, typer.Option(help="Settings, as TOML.", metavar="F.toml")
    ] = None,
    set: Annotated[
        list[str] | None, typer.Option(help="One setting; wins over --config.", metavar="KEY=VALUE")
    ] = None,
    seed: int = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint.")] = False,
    refit: Annotated[
        bool, typer.Option("--refit", help="Then fit again on train and validation.")
    ] = False,
    add: Annotated[
        Path | None,
        typer.Option(help="Then add these pairs; a MODEL that is there is not fitted again."),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="The validation score; ndcg@10 or, for graded rows, pauc@fpr=0.1; of a method "
            "with a setting fpr, pauc up to twice that."
        ),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            help="Steps without a better score; 3 or, for graded rows, as many as come, of which "
            "the last is kept where validation has too few rows to choose one by."
        ),
    ] = None,
    validation_queries: Annotated[int, typer.Option(help="Score at most so many.")] = 10_000,
    checkpoint_seconds: Annotated[float, typer.Option(help="Between two checkpoints.")] = 30.0,
    seconds: Annotated[
        float | None, typer.Option(help="End at the first step after these.")
    ] = None,
    candidate_memory: Annotated[
        int,
        typer.Option(
            metavar="BYTES",
            help="Of a table of all candidates; a larger one is divided among ranks.",
        ),
    ] = 2**34,
    track: Annotated[
        str | None,
        typer.Option(
            metavar="TOOL:DIR", help="Note each step for tensorboard:DIR or mlflow:DIR too."
        ),
    ] = None,
    json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Learn a model from prepared data; Ctrl-C keeps the last checkpoint for --resume."""
    from rankfold import config as settings
    from rankfold.distributed.connection import connect
    from rankfold.errors import UserError
    from rankfold.tasks.fit import find_method, fit
    from rankfold.tasks.update import exists, fit_and_add
    from rankfold.training.checkpoint import path_of
    from rankfold.training.tracking import together, tracked

    options: dict[str, Any] = settings.read(config) if config else {}
    options |= settings.parse_words(set or [])
    settings.check_names(find_method(method).config, options)
    if add is not None and connect().size > 1:
        raise UserError("pairs are added by one process", hint="use --add without torchrun")
    kept = path_of(out)
    say = console(quiet=quiet or json)
    finished = resume and exists(out) and not kept.exists()
    if add is not None and exists(out):
        say.print(f"{out} is there: it is added to, not fitted again")
    elif kept.exists() and not resume:
        say.print(f"{kept} is left from an unfinished fit and will be replaced", style="yellow")
    elif resume and not finished and not kept.exists():
        say.print(f"there is no checkpoint {kept}: starting at the beginning")
    asked = {"method": method, "data": str(data), "seed": seed, "refit": refit, **options}
    try:
        with (
            progress(quiet=quiet or json) as tell,
            tracked(
                track if connect().rank == 0 else None, method, asked, metric=metric or "score"
            ) as note,
        ):
            how: dict[str, Any] = {"seed": seed, "device": device, "resume": resume, "refit": refit}
            how |= {
                "metric": metric,
                "patience": patience,
                "report": together(reporter(tell, metric or "score"), note),
            }
            how |= {"validation_queries": validation_queries, "candidate_memory": candidate_memory}
            how |= {"checkpoint_seconds": checkpoint_seconds, "seconds": seconds}
            how |= {"out": out, **options}
            ranker = fit_and_add(method, data, add, **how) if add else fit(method, data, **how)
    except KeyboardInterrupt:
        go_on = f"go on from {kept} with --resume"
        say.print(f"stopped: {go_on if kept.exists() else 'there is nothing to resume yet'}")
        raise typer.Exit(INTERRUPTED) from None
    if finished and add is None:
        say.print(f"{out} was finished already: nothing is done")
    notes = ranker.model.notes
    if json:
        print_json({"model": str(out), "method": method, "notes": dict(notes)})
        return
    if add is not None:
        say.print(describe_addition(notes["added"][-1]))
    choice = find_method(method).describe(ranker.model) or describe_step(notes, notes["metric"])
    say.print(f"{out}: {method}, {choice}")


def describe_step(notes: Mapping[str, Any], metric: str) -> str:
    """The step whose model was kept, and why, in words."""
    from rankfold.training.history import validated

    score = validated(notes)
    if score is not None:
        few = "" if notes.get("is_chosen", True) else ", the last: few rows to choose by"
        return f"step {notes['chosen']}{few}, validation {metric} {score:.4f}"
    rows = "rows" if "operating_on" in notes else "pairs"
    return f"step {notes['chosen']}, the last: there are no validation {rows} to choose by"


def reporter(tell: Tell, metric: str) -> Report:
    """Progress of a fit, a line per step."""

    def report(history: History, step: Step) -> None:
        entry = history.entries[-1] if step.whole else {}
        score = f", {metric} {entry['score']:.4f}" if "score" in entry else ""
        of = (
            history.steps
            or (step.model.config.get("sweeps") if step.model else None)
            or step.number
        )
        pace = f"{step.seconds:.2g} s a step" if step.whole else f"{step.seconds:.2g} s so far"
        loss = f", loss {step.loss:.6g}" if step.loss else ""  # 0: a step that learns nothing
        share = step.number / of if step.share is None else step.share
        if history.steps is not None:
            share = (step.number - (not step.whole)) / history.steps
        stage = "" if step.stage is None else f"{step.stage}, "
        tell(f"{history.phase}: {stage}step {step.number}, {pace}{loss}{score}", share)

    return report
