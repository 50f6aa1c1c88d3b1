"""Charts of a page: inline SVG in the page's own colours, light or dark.

A series has a style by its number: a colour, a dash and a mark, so that no two of 42 are alike and
none is told by its colour alone. Colours are classes (``m0`` ...) that the page defines. The best
few are named where they end; where there are many, the others stand back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Literal, NamedTuple

from rankfold.report.axes import CHARACTER, WIDTH, Axis, shortened
from rankfold.report.svg import DASHES

# After Okabe and Ito, darker on white and lighter on black: each has a contrast of 4.5 or more.
LIGHT = ("#0064a8", "#b34700", "#00704f", "#a23b7c", "#7a5c00", "#3d3d3d", "#5a49b8")
DARK = ("#56b4e9", "#f08c4a", "#2fc497", "#e89ac7", "#e6b93c", "#d5d5d5", "#ada2f5")
PAPER, NIGHT = "#ffffff", "#15181c"  # what they stand on
MARKS = ("circle", "square", "up", "diamond", "down", "cross")

HEIGHT, RIGHT, TOP, BOTTOM = 300, 24, 34, 50
NAMED = 5  # the best so many series have their names in the chart
MANY = 7  # with more series than these, the others are muted
ROOM = 12  # characters of a name in a chart, at most
GAP = 16.0  # between two names, one above the other
MARKED = 12  # marks on a line, at most

Emphasis = Literal["named", "plain", "muted"]


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
    emphasis: Emphasis = "plain"


class Field(NamedTuple):
    """Where in the picture values stand."""

    x: Axis
    y: Axis
    left: float
    right: float

    def place(self, across: float, up: float) -> tuple[float, float]:
        """A place of the picture, from shares of the field; y counts downwards."""
        return (
            self.left + (self.right - self.left) * across,
            HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * up,
        )

    def places(self, points: Sequence[Point]) -> list[tuple[float, float]]:
        return [self.place(self.x.share(point.x), self.y.share(point.y)) for point in points]


def chart(name: str, about: str, x: Axis, y: Axis, series: Sequence[Series]) -> str:
    """Series over two axes; ``name`` and ``about`` are read to those who do not see it.

    Points that are no numbers are left out. What is named stands before what is muted.
    """
    lines = [one._replace(points=_known(one.points)) for one in series]
    names = [shortened(one.name, ROOM) for one in lines if one.emphasis == "named"]
    right = WIDTH - RIGHT - CHARACTER * max(map(len, names), default=0)
    left = 14 + CHARACTER * max(len(label) for _, label in y.ticks)
    field = Field(x, y, left, right)
    order: Sequence[Emphasis] = ("muted", "plain", "named")
    behind = sorted(lines, key=lambda one: (order.index(one.emphasis), -one.style))
    parts = [_grid(field), *(_drawn(one, field) for one in behind), _labels(lines, field)]
    return (
        f'<svg class="chart" role="img" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f"<title>{escape(name)}</title><desc>{escape(about)}</desc>{''.join(parts)}</svg>"
    )


def emphasis(style: int, of: int) -> Emphasis:
    """How a series stands out among so many, the best of which has style 0."""
    if of > 1 and style < NAMED:
        return "named"
    return "muted" if of > MANY else "plain"


def _known(points: Sequence[Point]) -> list[Point]:
    return [point for point in points if math.isfinite(point.x + point.y)]


def _drawn(one: Series, field: Field) -> str:
    """The line, whiskers and marks of a series; a line that is muted has one mark, at its end."""
    places, muted = field.places(one.points), one.emphasis == "muted"
    parts = [f'<g class="{colour(one.style)}"><title>{escape(one.name)}</title>']
    if one.joined and len(places) > 1:
        parts.append(_polyline(places, one.style, faint=muted))
    every = len(places) if muted else math.ceil(len(places) / MARKED)
    for point, place in list(zip(one.points, places, strict=True))[:: -every or -1]:
        parts.append("" if muted and len(places) > 1 else _whisker(point, place, field))
        parts.append(_mark(place, one.style, faint=muted))
    return "".join([*parts, "</g>"])


def _labels(lines: Sequence[Series], field: Field) -> str:
    """The names of the best beside where they end; a thin line leads to one that stands apart."""
    ends = {one.name: field.places(one.points)[-1] for one in lines if one.points}
    taken = [Box(x - 5, x + 5, y - 5, y + 5) for x, y in ends.values()]
    parts = []
    for one in lines:
        if one.emphasis != "named" or not one.points:
            continue
        words, (x, y) = shortened(one.name, ROOM), ends[one.name]
        box = Box(x + 8, x + 8 + CHARACTER * len(words), y - GAP / 2, y + GAP / 2)
        moves = (box.moved(sign * 4.0 * step) for step in range(50) for sign in (1, -1))
        box = next((b for b in moves if b.inside() and not any(map(b.meets, taken))), box)
        taken.append(box)
        height = (box.top + box.bottom) / 2
        away = abs(height - y) > GAP / 2
        leader = _leader((x, y), (box.left + 2, height)) if away else ""
        place = f'x="{box.left + 4 * away:.1f}" y="{height + 4.5:.1f}"'
        parts.append(
            f'<g class="{colour(one.style)}">{leader}<text class="name" {place}>'
            f"{escape(words)}</text></g>"
        )
    return "".join(parts)


class Box(NamedTuple):
    """Where something stands already; y counts downwards."""

    left: float
    right: float
    top: float
    bottom: float

    def moved(self, down: float) -> Box:
        return self._replace(top=self.top + down, bottom=self.bottom + down)

    def meets(self, other: Box) -> bool:
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom

    def inside(self) -> bool:
        return self.top >= TOP - GAP and self.bottom <= HEIGHT - BOTTOM


def _leader(start: tuple[float, float], end: tuple[float, float]) -> str:
    (x1, y1), (x2, y2) = start, end
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="currentColor" '
        'stroke-width="0.75"/>'
    )


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


def sample(style: int, of: int = 1) -> str:
    """How a series looks among so many, for a legend."""
    faint = emphasis(style, of) == "muted"
    line = _polyline([(0.0, 7.0), (34.0, 7.0)], style, faint=faint)
    inside = f"{line}{_mark((17.0, 7.0), style, faint=faint)}"
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


def _grid(field: Field) -> str:
    """Axes, ticks and their names; the name of the upward axis stands above it."""
    (left, bottom), right = field.place(0, 0), field.right
    parts = [_words(4, 16, field.y.label, "start")]
    for value, label in field.y.ticks:
        _, height = field.place(0, field.y.share(value))
        parts.append(_line((left, height), (right, height), "faint"))
        parts.append(_words(left - 7, height + 4.5, label, "end"))
    for value, label in field.x.ticks:
        across, _ = field.place(field.x.share(value), 0)
        parts.append(_line((across, bottom), (across, bottom + 5), "ink"))
        parts.append(_words(across, bottom + 19, label, "middle"))
    parts.append(_line((left, bottom), (right, bottom), "ink"))
    parts.append(_words((left + right) / 2, HEIGHT - 9, field.x.label, "middle"))
    return "".join(parts)


def _whisker(point: Point, place: tuple[float, float], field: Field) -> str:
    if point.low is None or point.high is None or not math.isfinite(point.low + point.high):
        return ""
    ends = [field.place(0, field.y.share(value))[1] for value in (point.low, point.high)]
    return (
        f'<line x1="{place[0]:.1f}" y1="{ends[0]:.1f}" x2="{place[0]:.1f}" y2="{ends[1]:.1f}" '
        'stroke="currentColor" stroke-width="1.5"/>'
    )


def _mark(place: tuple[float, float], style: int, *, faint: bool) -> str:
    if not faint:
        return mark(place, style)
    x, y = place
    return f'<g transform="translate({x:.1f} {y:.1f}) scale(0.7)">{mark((0, 0), style)}</g>'


def _polyline(places: Sequence[tuple[float, float]], style: int, *, faint: bool) -> str:
    listed = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dash = DASHES[style % len(DASHES)]
    width = 'stroke-width="1" stroke-opacity="0.5"' if faint else 'stroke-width="2"'
    return (
        f'<polyline points="{listed}" fill="none" stroke="currentColor" {width} '
        f'stroke-linejoin="round" stroke-dasharray="{dash}"/>'
    )


def _line(start: tuple[float, float], end: tuple[float, float], kind: str) -> str:
    (x1, y1), (x2, y2) = start, end
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _words(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
