"""Folders on disk: models, prepared data and checkpoints.

``manifest.json`` names every other file with its size and sha256. It is replaced last and
atomically, so a reader sees the old folder or the new one, never a mixture. The name of a data file
contains its hash, and the file never changes. Files that the manifest no longer names stay until
the next write, for readers that still hold the old manifest.
"""

from rankfold.storage.destination import check_destination, check_writable, locked, sweep
from rankfold.storage.manifest import MANIFEST, Content, ForeignFile, damaged, versions
from rankfold.storage.reader import Folder, check_contents, read
from rankfold.storage.writer import to_json, write, write_text

__all__ = [
    "MANIFEST",
    "Content",
    "Folder",
    "ForeignFile",
    "check_contents",
    "check_destination",
    "check_writable",
    "damaged",
    "locked",
    "read",
    "sweep",
    "to_json",
    "versions",
    "write",
    "write_text",
]
