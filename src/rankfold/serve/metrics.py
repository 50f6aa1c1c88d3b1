"""Counters and gauges in the text format of Prometheus, of one process or of several."""

import os
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

Labels = tuple[str, ...]
Counts = dict[str, dict[Labels, float]]
"""Values by name and labels; these can be added up over processes."""
Combine = Callable[[float, float], float]

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
_SERIES = {  # what follows the histogram: type and labels
    "in_flight": ("gauge", ()),
    "ready": ("gauge", ("model",)),
    "waiting": ("gauge", ("model",)),
    "swaps_total": ("counter", ("model", "outcome")),
    "searches_total": ("counter", ("model",)),
    "searched_requests_total": ("counter", ("model",)),
}
_GAUGES = ("in_flight", "ready", "waiting", "private_bytes", "shared_bytes")
_COMBINE: dict[str, Combine] = {"ready": min, "shared_bytes": max}


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

    def counts(self, ready: Mapping[Labels, int], waiting: Mapping[Labels, int]) -> Counts:
        """All values of this process; ``ready`` is 1 for each loaded model."""
        buckets: dict[Labels, float] = {
            (endpoint, str(place)): n
            for endpoint, counts in list(self.buckets.items())
            for place, n in enumerate(counts)
        }
        resident, shared = _memory()
        return {
            "requests_total": {**self.requests},
            "buckets": {**buckets},
            "seconds": {(endpoint,): total for endpoint, total in list(self.seconds.items())},
            "in_flight": {(): self.in_flight},
            "ready": {**ready},
            "waiting": {**waiting},
            "swaps_total": {**self.swaps},
            "searches_total": {**self.searches},
            "searched_requests_total": {**self.searched},
            "private_bytes": {(): resident - shared},
            "shared_bytes": {(): shared},
        }


def total(processes: Iterable[Counts]) -> Counts:
    """The counts of several processes together. The memory that they share counts once."""
    result: Counts = {}
    for counts in processes:
        for name, values in counts.items():
            combine, own = _COMBINE.get(name, _plus), result.setdefault(name, {})
            for labels, value in values.items():
                own[labels] = combine(own[labels], value) if labels in own else value
    return result


def _plus(first: float, second: float) -> float:
    return first + second


def lasting(counts: Counts) -> Counts:
    """What remains of a process that has ended."""
    return {name: values for name, values in counts.items() if name not in _GAUGES}


def text_of(counts: Counts) -> str:
    """The page for Prometheus."""
    resident = counts["private_bytes"][()] + counts["shared_bytes"][()]
    lines = [
        *_lines("requests_total", "counter", ("endpoint", "status"), counts["requests_total"]),
        *_histogram(counts),
        *(line for name, how in _SERIES.items() for line in _lines(name, *how, counts[name])),
        *_lines("resident_bytes", "gauge", (), {(): resident}),
    ]
    return "\n".join(lines) + "\n"


def to_plain(counts: Counts) -> list[tuple[str, list[tuple[Labels, float]]]]:
    """Counts as plain JSON values."""
    return [(name, list(values.items())) for name, values in counts.items()]


def from_plain(plain: Iterable[tuple[str, Iterable[tuple[Iterable[str], float]]]]) -> Counts:
    return {name: {tuple(labels): value for labels, value in values} for name, values in plain}


def _histogram(counts: Counts) -> Iterable[str]:
    name = "rankfold_request_seconds"
    yield f"# TYPE {name} histogram"
    for (endpoint,), seconds in counts["seconds"].items():
        label, n = f'endpoint="{_escaped(endpoint)}"', 0.0
        for place, bound in enumerate((*_BUCKETS, "+Inf")):
            n += counts["buckets"].get((endpoint, str(place)), 0)
            yield f'{name}_bucket{{{label},le="{bound}"}} {n:.0f}'
        yield f"{name}_sum{{{label}}} {seconds:.6f}"
        yield f"{name}_count{{{label}}} {n:.0f}"


def _memory() -> tuple[int, int]:
    """Resident bytes of the process, and how many of them may be shared; 0 without ``/proc``."""
    try:
        words = Path("/proc/self/statm").read_text(encoding="ascii").split()
        resident, shared = int(words[1]), int(words[2])
    except (OSError, ValueError, IndexError):
        return 0, 0
    page = os.sysconf("SC_PAGE_SIZE")
    return resident * page, shared * page


def _lines(name: str, kind: str, labels: Labels, values: Mapping[Labels, float]) -> Iterable[str]:
    yield f"# TYPE rankfold_{name} {kind}"
    for label_values, value in list(values.items()):
        pairs = zip(labels, label_values, strict=True)
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in pairs)
        yield f"rankfold_{name}{{{shown}}} {value}" if shown else f"rankfold_{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
