"""``rankfold verify``: check every file of a folder against its checksum."""

from typing import Annotated

import typer

from rankfold.cli.console import console, print_json
from rankfold.cli.options import Folder, Json
from rankfold.errors import pluralize


def command(
    folder: Folder,
    *,
    clean: Annotated[
        bool, typer.Option("--clean", help="Remove what earlier or killed writes left.")
    ] = False,
    json: Json = False,
) -> None:
    """Check every file of a folder against its checksum, and list files that belong to none."""
    from rankfold import storage

    manifest = storage.read(folder, full=True).manifest
    left, foreign = storage.leftovers(folder), storage.foreign(folder)
    if clean:
        storage.sweep(folder)
        left = storage.leftovers(folder)
    if json:
        paths = {"leftovers": [str(path) for path in left], "foreign": list(map(str, foreign))}
        print_json({"folder": str(folder), "kind": manifest["kind"], "good": True, **paths})
        return
    out, n_files = console(), len(manifest["files"]) + 1  # and the manifest
    out.print(f"{folder}: {manifest['kind']}, all {n_files} files are intact")
    if left:
        names = ", ".join(path.name for path in left)
        what = pluralize(len(left), "leftover")
        out.print(f"{what} of earlier writes: {names}; --clean removes them", style="yellow")
    if foreign:
        names = ", ".join(path.name for path in foreign)
        out.print(f"not in its manifest: {names}", style="yellow")
