"""The peak memory of the process during some work."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_PERIOD = 0.02  # seconds between two samples
_STATM = Path("/proc/self/statm")


@dataclass(slots=True)
class Peak:
    """The highest number of bytes so far; None where the system does not report it."""

    bytes: int | None = None

    def update(self, current: int | None) -> None:
        if current is not None:
            self.bytes = max(self.bytes or 0, current)


@contextmanager
def measure_peak() -> Iterator[Peak]:
    """The peak of the process within the context.

    The system reports the peak since the process started. If it rises within the context, it is the
    result. Otherwise earlier work needed more, and the result is the highest of many samples.
    """
    peak, before, done = Peak(), _peak_since_start(), threading.Event()
    sampler = threading.Thread(target=_sample, args=(peak, done), daemon=True)
    sampler.start()
    try:
        yield peak
    finally:
        done.set()
        sampler.join()
        after = _peak_since_start()
        if peak.bytes is None or after != before:
            peak.update(after)


def _peak_since_start() -> int | None:
    """The peak of the process since it started; None on Windows."""
    if sys.platform == "win32":
        return None
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _sample(peak: Peak, done: threading.Event) -> None:
    if not _STATM.exists():
        return
    page = os.sysconf("SC_PAGE_SIZE")
    while True:
        peak.update(int(_STATM.read_text().split()[1]) * page)
        if done.wait(_PERIOD):
            return
