"""The checksum of a file, and whether a file still matches its manifest entry."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankfold.storage.manifest import damaged

HEAD = 2**20  # bytes at the start of a file, including its header, compared at every opening


def digest(path: Path, size: int | None = None) -> str:
    """The sha256 of a file, or of its first ``size`` bytes."""
    with path.open("rb") as file:
        if size is not None:
            return hashlib.sha256(file.read(size)).hexdigest()
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_file(folder: Path, entry: Mapping[str, Any], *, full: bool = False) -> Path:
    """The path of a manifest entry; a UserError if the file differs from what was written.

    ``full`` compares the whole file, not only its size and its head.
    """
    path: Path = folder / entry["file"]
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise damaged(folder, f"{path.name} is not a regular file (links are not followed)")
    if status.st_size != entry["size"]:
        what = f"{path.name} must have {entry['size']:,} bytes, got {status.st_size:,}"
        raise damaged(folder, what)
    actual, field = (digest(path), "sha256") if full else (digest(path, HEAD), "head")
    if actual != entry[field]:
        raise damaged(folder, f"{path.name} does not match its checksum")
    return path
