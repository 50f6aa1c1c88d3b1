"""An exclusive lock on a folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rankfold.errors import UserError


@contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Hold the lock of ``folder``; a UserError if another process holds it.

    The lock covers the folder itself, not the folders in it. It ends with the process, even if the
    process is killed. Yields False where the system has no such locks.
    """
    if sys.platform == "win32":
        yield False
        return
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            acquired = True
        except BlockingIOError:
            raise UserError(
                f"another process is writing {folder}",
                hint="wait until it is done, or choose another --out",
            ) from None
        except OSError:  # some network file systems
            acquired = False
        yield acquired
    finally:
        os.close(handle)
