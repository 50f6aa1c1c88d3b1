"""A private copy of a folder: checksummed as it is read, and out of reach afterwards.

The files of a folder are memory-mapped. If one is truncated, or its disk goes away, the process
ends with SIGBUS, and bytes that are written into it reach the answers. A server reads a private
copy instead, in memory or on disk, whose files have no names.
"""

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rankfold.errors import UserError
from rankfold.storage.manifest import damaged, regular_file
from rankfold.storage.reader import Folder, open_stable, verify

_CHUNK = 2**24  # bytes copied at a time
_CLONE = 0x40049409  # FICLONE: the copy shares the blocks of its source until one is written
_OPEN_FILES = (Path("/proc/self/fd"), Path("/dev/fd"))  # where an open file has a path


class PrivateFile:
    """An open file without a name. It is gone when the last process has closed it."""

    def __init__(self, handle: int) -> None:
        """The object closes ``handle``."""
        self.handle = handle

    @property
    def path(self) -> Path:
        """Where this process can open the file."""
        return next(filter(Path.exists, _OPEN_FILES)) / str(self.handle)

    def __del__(self) -> None:
        with suppress(OSError):
            os.close(self.handle)


def read_copy(path: Path, kind: str, memory: int) -> Folder:
    """Open a folder like ``read(path, kind, full=True)``, with private copies of its files.

    They are in memory if all together have at most ``memory`` bytes, else on disk. On Windows,
    which keeps the files that are mapped from being truncated, they are not copied.
    """
    use = partial(verify, full=True) if sys.platform == "win32" else partial(_copied, memory)
    return open_stable(path, kind, use)


def scratch() -> Path:
    """The folder for copies on disk: not /tmp if there is a choice, which may be in memory."""
    fallback = Path("/var/tmp")  # the files there have no names
    is_default = "TMPDIR" not in os.environ and os.access(fallback, os.W_OK)
    return fallback if is_default else Path(tempfile.gettempdir())


def _copied(memory: int, folder: Folder) -> Folder:
    entries: Mapping[str, Mapping[str, Any]] = folder.manifest["files"]
    left = sum(entry["size"] for entry in entries.values())
    place = None if left <= memory and hasattr(os, "memfd_create") else scratch()
    copies: dict[str, PrivateFile] = {}
    for name, entry in entries.items():
        copies[name] = _copy(folder.path, entry, place, left)
        left -= entry["size"]
    return replace(folder, copies=copies)


def _copy(folder: Path, entry: Mapping[str, Any], place: Path | None, left: int) -> PrivateFile:
    """A private copy of a file; ``place`` is None in memory; ``left``: bytes still to copy."""
    source = regular_file(folder, entry)
    with source.open("rb") as file:
        copy = _new_file(source.name, place)
        if place is None or not _clone(file.fileno(), copy.handle):
            if place is not None and (free := shutil.disk_usage(place).free) < left:
                raise _no_copy(folder, place, f"it needs {left:,} bytes, and {free:,} are free")
            with open(copy.handle, "wb", closefd=False) as target:
                size = entry["size"]
                try:
                    while size > 0 and (piece := file.read(min(_CHUNK, size))):
                        target.write(piece)
                        size -= len(piece)
                    target.flush()
                except OSError as error:
                    raise _no_copy(folder, place, error.strerror or str(error)) from error
        if place is None:
            _seal(copy.handle)
    with copy.path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != entry["sha256"]:
            raise damaged(folder, f"{source.name} does not match its checksum")
    return copy


def _new_file(name: str, place: Path | None) -> PrivateFile:
    if place is None:
        return PrivateFile(os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
    with tempfile.TemporaryFile(dir=place) as file:
        return PrivateFile(os.dup(file.fileno()))


def _clone(source: int, copy: int) -> bool:
    """Make one file share the blocks of another; False where the file system cannot."""
    import fcntl

    try:
        fcntl.ioctl(copy, _CLONE, source)
    except OSError:
        return False
    return True


def _seal(handle: int) -> None:
    """Let nobody change a file in memory, not even this process."""
    import fcntl

    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    fcntl.fcntl(handle, fcntl.F_ADD_SEALS, seals)


def _no_copy(folder: Path, place: Path | None, why: str) -> UserError:
    where = "memory" if place is None else place
    return UserError(
        f"cannot copy {folder} to {where}: {why}",
        hint="free some space, or set TMPDIR to a folder on a larger disk; --memory is the size "
        "of the models that are copied to memory",
    )
