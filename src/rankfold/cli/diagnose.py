"""``rankfold diagnose``: a theorem of a paper as a measurement, with a picture."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from rankfold import storage
from rankfold.cli.console import AsJson, Quiet, console, print_json, print_table, progress
from rankfold.errors import UserError


def command(
    name: Annotated[str, typer.Argument(help="ranks, whiteness or surrogate.")],
    data: Annotated[
        Path | None,
        typer.Argument(help="A folder of graded rows by `rankfold prepare`; surrogate needs none."),
    ] = None,
    *,
    out: Annotated[Path, typer.Option(help="Where NAME.json and pictures go.", metavar="DIR")],
    method: Annotated[str, typer.Option(help="Whose training is looked at.")] = "cba",
    set: Annotated[
        list[str] | None,
        typer.Option(help="One setting, of the diagnosis or the method.", metavar="KEY=VALUE"),
    ] = None,
    seed: int = 0,
    json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train with somebody looking on, and write what was seen as JSON and as pictures.

    ranks: true ranks against those told from the cache. whiteness: whether ranks wander as white
    noise does. surrogate: the surrogate risk against the exact one.
    """
    from rankfold.config import parse_words
    from rankfold.report.curves import curves_svg
    from rankfold.tasks.diagnose import diagnose, find_diagnosis

    say = console(quiet=quiet or json)
    if data is not None and not find_diagnosis(name).trains:
        say.print(f"{name} needs no data: {data} is not read", style="yellow")
    options = parse_words(set or [])
    _check_folder(out)
    with progress(quiet=quiet or json) as tell:
        found = diagnose(name, data, options, method=method, seed=seed, progress=tell)
    storage.write_text(out / f"{name}.json", storage.to_json(found.details, indent=1))
    for stem, chart in found.charts.items():
        storage.write_text(out / f"{stem}.svg", curves_svg(chart))
    if json:
        print_json(found.details)
        return
    rows = [[what, f"{value:.4f}"] for what, value in found.summary.items()]
    when = "at the end" if find_diagnosis(name).trains else "over all spreads"
    print_table(name, [when, "value"], rows, say)
    pictures = [f"{stem}.svg" for stem in found.charts]
    say.print(", ".join(str(out / file) for file in (f"{name}.json", *pictures)))


def _check_folder(out: Path) -> None:
    """A UserError, before the work begins, where the folder could not be made at its end."""
    there = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        why = "not yours to write into" if there.is_dir() else "no folder"
        raise UserError(
            f"cannot make the folder {out}: {there} is {why}", hint="name another with --out"
        )
