"""``rankfold diagnose``: measure a theorem of a paper, with pictures."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from rankfold import storage
from rankfold.cli.console import console, print_json, print_table, progress
from rankfold.cli.dry_run import show_outline
from rankfold.cli.options import DryRun, Json, Quiet, Seed, takes
from rankfold.errors import UserError


def command(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="{rankfold.tasks.diagnose:DIAGNOSES}.")
    ],
    data: Annotated[
        Path | None,
        typer.Argument(
            metavar="DATA",
            help="A folder from `rankfold prepare`, if NAME needs data.",
        ),
    ] = None,
    *,
    out: Annotated[Path, takes("DIR", "The folder for NAME.json and the pictures.")],
    model: Annotated[
        Path | None, takes("MODEL", "A model fitted on DATA; default: one is fitted.")
    ] = None,
    method: Annotated[
        str | None, takes("METHOD", "The method to fit or train; default: depends on NAME.")
    ] = None,
    set: Annotated[
        list[str] | None, takes("KEY=VALUE", "One setting of the diagnosis or the method.")
    ] = None,
    seed: Seed = 0,
    dry_run: DryRun = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure what a paper claims, on your model; write the answer as JSON and as pictures."""
    from rankfold.config import parse_words
    from rankfold.report.pictures import diagnosis_svg
    from rankfold.tasks.diagnose import diagnose, find_diagnosis

    say = console(quiet=quiet or json)
    diagnosis = find_diagnosis(name)
    if data is not None and diagnosis.subject == "nothing":
        say.print(f"{name} needs no data: {data} is ignored", style="yellow")
    options = parse_words(set or [])
    _check_folder(out)
    more: dict[str, Any] = {"model": model, "method": method, "seed": seed}
    if dry_run:
        from rankfold.tasks.dry_run.diagnose import outline_diagnose

        outline = outline_diagnose(name, data, options, out, **more)
        return show_outline(outline, json=json, quiet=quiet)
    with progress(quiet=quiet or json) as callback:
        result = diagnose(name, data, options, progress=callback, **more)
    storage.write_text(out / f"{name}.json", storage.to_json(result.details, indent=1))
    for stem, chart in result.charts.items():
        storage.write_text(out / f"{stem}.svg", diagnosis_svg(chart))
    if json:
        print_json(result.details)
        return
    rows = [[what, str(figure)] for what, figure in result.figures.items()]
    print_table(diagnosis.summary, ["figure", "value (95% interval)"], rows, say)
    say.print(result.follows, markup=False)
    pictures = [f"{stem}.svg" for stem in result.charts]
    say.print(", ".join(str(out / file) for file in (f"{name}.json", *pictures)))


def _check_folder(out: Path) -> None:
    """A UserError before the work begins if the folder cannot be made at its end."""
    existing = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        why = "not writable" if existing.is_dir() else "not a folder"
        raise UserError(
            f"cannot make the folder {out}: {existing} is {why}", hint="choose another --out"
        )
