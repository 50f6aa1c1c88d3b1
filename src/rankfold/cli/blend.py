"""``rankfold blend``: two fitted models as one."""

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

from rankfold.cli.console import console, print_json
from rankfold.cli.dry_run import show_outline
from rankfold.cli.fit import announce
from rankfold.cli.options import Data, DryRun, Json, Model, Quiet, takes, with_settings
from rankfold.tasks.options import FitOptions

_OPTIONS = ("metric", "device", "validation_queries")  # those that do not concern training


@with_settings(
    FitOptions, omit=[one.name for one in fields(FitOptions) if one.name not in _OPTIONS]
)
def command(
    first: Model,
    second: Model,
    data: Data,
    *,
    out: Annotated[Path, takes("MODEL", "The folder to write.")],
    set: Annotated[
        list[str] | None,
        takes("KEY=VALUE", "share, the weight of the second model from 0 to 1; or path_queries."),
    ] = None,
    dry_run: DryRun = False,
    json: Json = False,
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Add the scores of two models fitted on DATA; validation chooses the weights."""
    from rankfold.config import parse_words
    from rankfold.methods import find_method
    from rankfold.tasks.blend import blend
    from rankfold.training.checkpoint import path_of

    options |= parse_words(set or [])
    if dry_run:
        from rankfold.tasks.dry_run.blend import outline_blend

        outline = outline_blend([first, second], data, out, **options)
        return show_outline(outline, json=json, quiet=quiet)
    say = console(quiet=quiet or json)
    announce(out, path_of(out), say, resume=False, adds=False)
    model = blend([first, second], data, out=out, **options).model
    if json:
        print_json({"model": str(out), "method": model.method, "notes": dict(model.notes)})
        return
    choice = find_method("blend").describe(model) or f"share {model.config['share']:g}"
    names = f"{model.config['first']} and {model.config['second']}"
    say.print(f"{out}: blend of {names}, {choice}")
