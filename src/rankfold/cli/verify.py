"""``rankfold verify``: compare every file of a folder with its checksum."""

from pathlib import Path
from typing import Annotated

import typer

from rankfold.cli.console import AsJson, console, print_json


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR")], *, json: AsJson = False
) -> None:
    """Compare every file of a folder with its checksum."""
    from rankfold import storage

    manifest = storage.read(folder, full=True).manifest
    if json:
        print_json({"folder": str(folder), "kind": manifest["kind"], "good": True})
    else:
        n = len(manifest["files"]) + 1
        console().print(f"{folder}: {manifest['kind']}, all {n} files are as they were written")
