"""The scales of a chart: linear, logarithmic, or categories side by side."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

_LONG = 1e10  # powers of ten from here on are written with an exponent
_N_TICKS = 6  # of an axis, approximately
_LABEL_CHARACTERS = 36  # of all category labels together


class Scale(NamedTuple):
    """The position of values from 0 to 1, and the labels of its ticks."""

    label: str
    ticks: Sequence[tuple[float, str]]
    share: Callable[[float], float]


def linear(label: str, values: Sequence[float]) -> Scale:
    """Round numbers around all values; a single value is in the middle."""
    known = [value for value in values if math.isfinite(value)]
    if len(set(known)) == 1:
        margin = (abs(known[0]) or 1.0) / 10
        known = [known[0] - margin, known[0] + margin]
    places = round_ticks(known)
    low, high = places[0], places[-1]
    return Scale(label, [(v, f"{v:.6g}") for v in places], lambda v: (v - low) / (high - low))


def logarithmic(label: str, values: Sequence[float]) -> Scale:
    """Powers of ten around all values, or 1, 2, 5, 10 if they span at most two powers.

    Values that are not positive are at the left end.
    """
    positive = [value for value in values if math.isfinite(value) and value > 0] or [1.0]
    low, high = math.log10(min(positive)), math.log10(max(positive))
    first, last = math.floor(low + 1e-9), math.ceil(high - 1e-9)
    if last - first <= 2:
        every = [f * 10.0**e for e in range(first, last + 1) for f in (1, 2, 5)]
        before = max((v for v in every if v <= min(positive) * 1.001), default=every[0])
        after = min((v for v in every if v >= max(positive) * 0.999), default=every[-1])
        places = [v for v in every if before <= v <= after]
    else:
        step = math.ceil((last - first) / _N_TICKS)
        places = [10.0**e for e in range(first, last + step, step)]
    if len(places) == 1:
        places = [places[0] / 10, places[0], places[0] * 10]
    start, end = math.log10(places[0]), math.log10(places[-1])

    def share(value: float) -> float:
        return (math.log10(value) - start) / (end - start) if value > places[0] else 0.0

    labels = [_short(value) for value in places]
    return Scale(label, list(zip(places, labels, strict=True)), share)


def _short(value: float) -> str:
    """1,000,000 and .001, but 1e9: labels must not overlap."""
    if value >= _LONG:
        return f"{value:.0e}".replace("e+0", "e").replace("e+", "e")
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def categories(label: str, names: Sequence[str]) -> Scale:
    """Categories side by side; category i has the value i."""
    count = max(len(names), 1)
    ticks = [(float(i), shorten(name, _LABEL_CHARACTERS // count)) for i, name in enumerate(names)]
    return Scale(label, ticks, lambda v: (v + 0.5) / count)


def round_ticks(values: Sequence[float]) -> list[float]:
    """Round numbers in even steps, the first and the last around all values."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if high - low <= 1e-9 * abs(high):
        high = low + (abs(low) or 1.0)
    rough = (high - low) / _N_TICKS
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * i for i in range(first, last + 1)]


def with_zero(values: Sequence[float]) -> list[float]:
    """The values, with 0 unless that would leave them less than half of the axis."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    return [0.0, *values] if 0 < 2 * low <= high else list(values)


def shorten(text: str, limit: int) -> str:
    """At most ``limit`` characters, but at least four."""
    return text if len(text) <= max(limit, 4) else text[: max(limit, 4) - 1] + "…"
