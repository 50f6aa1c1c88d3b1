"""Axes of a chart: round numbers, powers of ten, or groups side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rankfold.report.curves import ticks

WIDTH = 480  # of a chart
LABELS = 6  # of a log axis, at most
CHARACTER = 8.0  # the width of one, about


class Axis(NamedTuple):
    """Where values stand, from 0 to 1, and what is written there."""

    label: str
    ticks: Sequence[tuple[float, str]]
    share: Callable[[float], float]


def linear(label: str, values: Sequence[float]) -> Axis:
    """Round numbers around all values; a single one stands in the middle."""
    known = [value for value in values if math.isfinite(value)]
    if len(set(known)) == 1:
        known = [known[0] - (abs(known[0]) or 1.0) / 10, known[0] + (abs(known[0]) or 1.0) / 10]
    at = ticks(known)
    low, high = at[0], at[-1]
    return Axis(label, [(v, f"{v:.6g}") for v in at], lambda v: (v - low) / (high - low))


def logarithmic(label: str, values: Sequence[float]) -> Axis:
    """Powers of ten around all values, or 1, 2, 5, 10 if they are within two of them.

    What is not above 0 stands at the left end.
    """
    positive = [value for value in values if math.isfinite(value) and value > 0] or [1.0]
    low, high = math.log10(min(positive)), math.log10(max(positive))
    first, last = math.floor(low + 1e-9), math.ceil(high - 1e-9)
    if last - first <= 2:
        every = [f * 10.0**e for e in range(first, last + 1) for f in (1, 2, 5)]
        before = max((v for v in every if v <= min(positive) * 1.001), default=every[0])
        after = min((v for v in every if v >= max(positive) * 0.999), default=every[-1])
        at = [v for v in every if before <= v <= after]
    else:
        step = math.ceil((last - first) / LABELS)
        at = [10.0**e for e in range(first, last + step, step)]
    if len(at) == 1:
        at = [at[0] / 10, at[0], at[0] * 10]
    start, end = math.log10(at[0]), math.log10(at[-1])

    def share(value: float) -> float:
        return (math.log10(value) - start) / (end - start) if value > at[0] else 0.0

    return Axis(label, [(value, _plain(value)) for value in at], share)


def named(label: str, names: Sequence[str]) -> Axis:
    """Groups side by side; group i stands at i."""
    room = 0.6 * WIDTH / max(len(names), 1)
    at = [(float(i), shortened(name, int(room / CHARACTER))) for i, name in enumerate(names)]
    return Axis(label, at, lambda v: (v + 0.5) / max(len(names), 1))


def shortened(words: str, room: int) -> str:
    """At most ``room`` characters (but at least four)."""
    return words if len(words) <= max(room, 4) else words[: max(room, 4) - 1] + "…"


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"
