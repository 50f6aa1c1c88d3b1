"""Charts of a page: inline SVG in the page's own colours, light or dark.

A series has a style by its number: a colour, a dash and a mark, so that no two of 42 are alike and
none is told by its colour alone. Colours are classes (``m0`` ...) that the page defines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from rankfold.report.curves import ticks
from rankfold.report.svg import DASHES

# After Okabe and Ito, darker on white and lighter on black: each has a contrast of 4.5 or more.
LIGHT = ("#0064a8", "#b34700", "#00704f", "#a23b7c", "#7a5c00", "#3d3d3d", "#5a49b8")
DARK = ("#56b4e9", "#f08c4a", "#2fc497", "#e89ac7", "#e6b93c", "#d5d5d5", "#ada2f5")
PAPER, NIGHT = "#ffffff", "#15181c"  # what they stand on
MARKS = ("circle", "square", "up", "diamond", "down", "cross")

WIDTH, HEIGHT, RIGHT, TOP, BOTTOM = 440, 300, 24, 34, 50
LABELS = 6  # of a log axis, at most
CHARACTER = 8.0  # the width of one, about


class Point(NamedTuple):
    """A value at a place, and its interval if it is known."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


class Series(NamedTuple):
    """The points of a method."""

    name: str
    style: int
    points: Sequence[Point]
    joined: bool = True


class Axis(NamedTuple):
    """Where values stand, from 0 to 1, and what is written there."""

    label: str
    ticks: Sequence[tuple[float, str]]
    share: Callable[[float], float]


def chart(name: str, about: str, x: Axis, y: Axis, series: Sequence[Series]) -> str:
    """Series over two axes; ``name`` and ``about`` are read to those who do not see it.

    Points that are no numbers are left out.
    """
    left = 14 + CHARACTER * max(len(label) for _, label in y.ticks)
    parts = [_grid(x, y, left)]
    for one in series:
        points = [point for point in one.points if math.isfinite(point.x + point.y)]
        places = [_place(left, x.share(point.x), y.share(point.y)) for point in points]
        drawn = [_polyline(places, one.style)] if one.joined and len(places) > 1 else []
        for point, place in zip(points, places, strict=True):
            drawn += [_whisker(point, place, y), mark(place, one.style)]
        parts.append(f'<g class="{colour(one.style)}"><title>{escape(one.name)}</title>')
        parts += [*drawn, "</g>"]
    return (
        f'<svg class="chart" role="img" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f"<title>{escape(name)}</title><desc>{escape(about)}</desc>{''.join(parts)}</svg>"
    )


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
    room = 0.8 * WIDTH / max(len(names), 1)
    at = [(float(i), shortened(name, int(room / CHARACTER))) for i, name in enumerate(names)]
    return Axis(label, at, lambda v: (v + 0.5) / max(len(names), 1))


def interval(point: Point, ends: tuple[float, float], style: int) -> str:
    """A value with its interval between two ends, as small as a word; the numbers are beside it."""
    width, span = 96, (ends[1] - ends[0]) or 1.0
    low, at, high = (
        width * ((end if value is None else value) - ends[0]) / span
        for value, end in zip(
            (point.low, point.y, point.high), (ends[0], 0.0, ends[1]), strict=True
        )
    )
    return (
        f'<svg class="interval {colour(style)}" viewBox="-6 0 {width + 12} 14" aria-hidden="true">'
        f'<line class="faint" x1="0" y1="7" x2="{width}" y2="7"/>'
        f'<line x1="{low:.1f}" y1="7" x2="{high:.1f}" y2="7" stroke="currentColor" '
        f'stroke-width="2"/><circle cx="{at:.1f}" cy="7" r="3.5" fill="currentColor"/></svg>'
    )


def sample(style: int) -> str:
    """How a series looks, for a legend."""
    line = _polyline([(0.0, 7.0), (34.0, 7.0)], style)
    inside = f"{line}{mark((17.0, 7.0), style)}"
    return (
        f'<svg class="sample {colour(style)}" viewBox="0 0 34 14" aria-hidden="true">{inside}</svg>'
    )


def mark(place: tuple[float, float], style: int) -> str:
    """The mark of a series at a place, in the colour around it."""
    x, y = place
    shape = MARKS[style % len(MARKS)]
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="currentColor"/>'
    if shape == "cross":
        return (
            f'<path d="M{x - 4:.1f} {y - 4:.1f}l8 8m0-8l-8 8" stroke="currentColor" '
            'stroke-width="2.5" fill="none"/>'
        )
    paths: Mapping[str, str] = {
        "square": f"M{x - 3.7:.1f} {y - 3.7:.1f}h7.4v7.4h-7.4z",
        "up": f"M{x:.1f} {y - 5:.1f}l4.8 8.4h-9.6z",
        "diamond": f"M{x:.1f} {y - 5.2:.1f}l5.2 5.2l-5.2 5.2l-5.2-5.2z",
        "down": f"M{x:.1f} {y + 5:.1f}l4.8-8.4h-9.6z",
    }
    return f'<path d="{paths[shape]}" fill="currentColor"/>'


def colour(style: int) -> str:
    return f"m{style % len(LIGHT)}"


def shortened(words: str, room: int) -> str:
    """At most ``room`` characters (but at least four)."""
    return words if len(words) <= max(room, 4) else words[: max(room, 4) - 1] + "…"


def _grid(x: Axis, y: Axis, left: float) -> str:
    """Axes, ticks and their names; the name of the upward axis stands above it."""
    right, bottom = _place(left, 1, 0)
    parts = [_words(4, 16, y.label, "start")]
    for value, label in y.ticks:
        _, height = _place(left, 0, y.share(value))
        parts.append(_line((left, height), (right, height), "faint"))
        parts.append(_words(left - 7, height + 4.5, label, "end"))
    for value, label in x.ticks:
        across, _ = _place(left, x.share(value), 0)
        parts.append(_line((across, bottom), (across, bottom + 5), "ink"))
        parts.append(_words(across, bottom + 19, label, "middle"))
    parts.append(_line((left, bottom), (right, bottom), "ink"))
    parts.append(_words((left + right) / 2, HEIGHT - 9, x.label, "middle"))
    return "".join(parts)


def _place(left: float, across: float, up: float) -> tuple[float, float]:
    """A place of the picture, from shares of the field; y counts downwards."""
    return (
        left + (WIDTH - left - RIGHT) * across,
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * up,
    )


def _whisker(point: Point, place: tuple[float, float], y: Axis) -> str:
    if point.low is None or point.high is None or not math.isfinite(point.low + point.high):
        return ""
    ends = [_place(0, 0, y.share(value))[1] for value in (point.low, point.high)]
    return (
        f'<line x1="{place[0]:.1f}" y1="{ends[0]:.1f}" x2="{place[0]:.1f}" y2="{ends[1]:.1f}" '
        'stroke="currentColor" stroke-width="1.5"/>'
    )


def _polyline(places: Sequence[tuple[float, float]], style: int) -> str:
    listed = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dash = DASHES[style % len(DASHES)]
    return (
        f'<polyline points="{listed}" fill="none" stroke="currentColor" stroke-width="2" '
        f'stroke-linejoin="round" stroke-dasharray="{dash}"/>'
    )


def _line(start: tuple[float, float], end: tuple[float, float], kind: str) -> str:
    (x1, y1), (x2, y2) = start, end
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _words(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"
