"""``rankfold verify``: check every file of a folder against its checksum."""

from rankfold.cli.console import console, print_json
from rankfold.cli.options import Folder, Json


def command(folder: Folder, *, json: Json = False) -> None:
    """Check every file of a folder against its checksum."""
    from rankfold import storage

    manifest = storage.read(folder, full=True).manifest
    if json:
        print_json({"folder": str(folder), "kind": manifest["kind"], "good": True})
    else:
        n_files = len(manifest["files"]) + 1  # and the manifest
        console().print(f"{folder}: {manifest['kind']}, all {n_files} files are intact")
