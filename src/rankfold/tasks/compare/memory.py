"""How much memory the process held while something was done."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PERIOD = 0.02  # seconds between two looks
_NOW = Path("/proc/self/statm")


@dataclass(slots=True)
class Peak:
    """The most bytes so far; None where the system does not tell."""

    bytes: int | None = None

    def see(self, found: int | None) -> None:
        if found is not None:
            self.bytes = max(self.bytes or 0, found)


@contextmanager
def watched() -> Iterator[Peak]:
    """The peak of the process meanwhile.

    The system knows the highest peak since the process began: if it rose meanwhile it is this one.
    Otherwise something before needed more, and the peak is the highest of many looks.
    """
    peak, before, done = Peak(), ever(), threading.Event()
    looking = threading.Thread(target=_look, args=(peak, done), daemon=True)
    looking.start()
    try:
        yield peak
    finally:
        done.set()
        looking.join()
        after = ever()
        if peak.bytes is None or after != before:
            peak.see(after)


def ever() -> int | None:
    """The highest peak since the process began."""
    if sys.platform == "win32":
        return None
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _look(peak: Peak, done: threading.Event) -> None:
    if not _NOW.exists():
        return
    page = os.sysconf("SC_PAGE_SIZE")
    while True:
        peak.see(int(_NOW.read_text().split()[1]) * page)
        if done.wait(PERIOD):
            return
