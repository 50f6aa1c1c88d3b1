"""Counters and gauges in the text format of Prometheus."""

import os
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

Labels = tuple[str, ...]
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds


class Metrics:
    """Counts since the start. The event loop counts requests, another thread counts swaps."""

    def __init__(self) -> None:
        self.requests: defaultdict[Labels, int] = defaultdict(int)  # endpoint, status
        self.buckets: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(_BUCKETS) + 1))
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.in_flight = 0
        self.swaps: defaultdict[Labels, int] = defaultdict(int)  # model, outcome
        self.searches: defaultdict[Labels, int] = defaultdict(int)  # model
        self.searched: defaultdict[Labels, int] = defaultdict(int)  # model: requests they answered

    def count(self, endpoint: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.requests[endpoint, str(status)] += 1
        self.buckets[endpoint][bisect_left(_BUCKETS, seconds)] += 1
        self.seconds[endpoint] += seconds

    def text(self, ready: Mapping[Labels, int], waiting: Mapping[Labels, int]) -> str:
        """The page for Prometheus; ``ready`` is 1 for each loaded model."""
        lines = [
            *_lines("requests_total", "counter", ("endpoint", "status"), self.requests),
            *self._histogram(),
            *_lines("in_flight", "gauge", (), {(): self.in_flight}),
            *_lines("ready", "gauge", ("model",), ready),
            *_lines("waiting", "gauge", ("model",), waiting),
            *_lines("swaps_total", "counter", ("model", "outcome"), self.swaps),
            *_lines("searches_total", "counter", ("model",), self.searches),
            *_lines("searched_requests_total", "counter", ("model",), self.searched),
            *_lines("resident_bytes", "gauge", (), {(): _resident_bytes()}),
        ]
        return "\n".join(lines) + "\n"

    def _histogram(self) -> Iterable[str]:
        name = "rankfold_request_seconds"
        yield f"# TYPE {name} histogram"
        for endpoint, counts in list(self.buckets.items()):
            label, total = f'endpoint="{_escaped(endpoint)}"', 0
            for bound, count in zip((*_BUCKETS, "+Inf"), counts, strict=True):
                total += count
                yield f'{name}_bucket{{{label},le="{bound}"}} {total}'
            yield f"{name}_sum{{{label}}} {self.seconds[endpoint]:.6f}"
            yield f"{name}_count{{{label}}} {total}"


def _resident_bytes() -> int:
    """Resident memory of the process; 0 on systems without ``/proc``."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _lines(
    name: str, kind: str, labels: Labels, values: Mapping[Labels, int | float]
) -> Iterable[str]:
    yield f"# TYPE rankfold_{name} {kind}"
    for label_values, value in list(values.items()):
        pairs = zip(labels, label_values, strict=True)
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in pairs)
        yield f"rankfold_{name}{{{shown}}} {value}" if shown else f"rankfold_{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
