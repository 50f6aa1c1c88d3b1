"""Charts as SVG: series over two scales, in light and dark colours.

``draw`` makes a chart for a page, ``picture`` a file with a title and a legend. A series has a
``Look``: a colour, a dash and a mark, so that it never differs by colour alone. Colours are CSS
classes (``m0`` ...), which ``css`` defines. In a chart with many series, the best few have their
names beside their last points, and the others are muted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Literal, NamedTuple

from rankfold.report.scales import Scale, shorten

WIDTH, HEIGHT, _RIGHT, _TOP, _BOTTOM = 480, 300, 24, 34, 50
CHARACTER = 8.0  # approximate width of a character
MAX_NAMES = 5  # series with their names in the chart
_MAX_PLAIN = 7  # with more series, those without a name are muted
_NAME_CHARACTERS = 20  # of a name in the chart: that of the longest method fits
NAME_HEIGHT = 16.0
MAX_MARKS = 12  # on a line
_TITLE, _LEGEND_ROW, _SAMPLE = 30, 22, 34  # of a picture: heights, and the width of a sample

_Place = tuple[float, float]
_Emphasis = Literal["named", "plain", "muted"]


class Theme(NamedTuple):
    """Colours after Okabe and Ito; the contrast of each with the paper is at least 4.5."""

    paper: str
    ink: str
    rule: str
    series: Sequence[str]


LIGHT = Theme(
    *("#ffffff", "#1b1f24", "#d5d9df"),
    ("#0064a8", "#b34700", "#00704f", "#a23b7c", "#7a5c00", "#3d3d3d", "#5a49b8"),
)
DARK = Theme(
    *("#15181c", "#e8eaed", "#3a414a"),
    ("#56b4e9", "#f08c4a", "#2fc497", "#e89ac7", "#e6b93c", "#d5d5d5", "#ada2f5"),
)
DASHES = ("", "6 3", "2 3", "8 3 2 3", "14 4", "2 6")
_SHAPES: Mapping[str, str] = {  # SVG paths around the origin
    "circle": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "square": "M-3.7-3.7h7.4v7.4h-7.4z",
    "up": "M0-5l4.8 8.4h-9.6z",
    "diamond": "M0-5.2l5.2 5.2l-5.2 5.2l-5.2-5.2z",
    "down": "M0 5l4.8-8.4h-9.6z",
    "cross": "M-5.3-3.5l1.8-1.8l3.5 3.5l3.5-3.5l1.8 1.8l-3.5 3.5l3.5 3.5l-1.8 1.8l-3.5-3.5l-3.5 3.5"
    "l-1.8-1.8l3.5-3.5z",
}
RING = "M-7 0a7 7 0 1 0 14 0a7 7 0 1 0-14 0zm2 0a5 5 0 1 1 10 0a5 5 0 1 1-10 0z"


class Look(NamedTuple):
    """The appearance of a series: a CSS class, a dash and the path of its mark."""

    colour: str
    dash: str = ""
    mark: str = ""  # empty: no marks


class Point(NamedTuple):
    """A value at a place, with its interval if it has one."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


class Series(NamedTuple):
    """Points with a common name and look."""

    name: str
    look: Look
    points: Sequence[Point]
    joined: bool = True
    emphasis: _Emphasis = "plain"


class Figure(NamedTuple):
    """A chart and its caption; ``svg`` is markup."""

    caption: str
    svg: str


class _Field(NamedTuple):
    """The area of a chart in which values are drawn."""

    x: Scale
    y: Scale
    left: float
    right: float

    def place(self, across: float, up: float) -> _Place:
        """Coordinates in the SVG, where y counts downwards, from shares of the field."""
        height = HEIGHT - _TOP - _BOTTOM
        return self.left + (self.right - self.left) * across, HEIGHT - _BOTTOM - height * up

    def places(self, points: Sequence[Point]) -> list[_Place]:
        return [self.place(self.x.share(point.x), self.y.share(point.y)) for point in points]


class Box(NamedTuple):
    """An occupied area; y counts downwards."""

    left: float
    right: float
    top: float
    bottom: float

    def moved(self, down: float) -> Box:
        return self._replace(top=self.top + down, bottom=self.bottom + down)

    def overlaps(self, other: Box) -> bool:
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom

    def inside(self) -> bool:
        return self.top >= _TOP - NAME_HEIGHT and self.bottom <= HEIGHT - _BOTTOM


def look(number: int) -> Look:
    """The look of series ``number``; the first 42 differ in colour and mark."""
    marks = list(_SHAPES.values())
    colour = f"m{number % len(LIGHT.series)}"
    return Look(colour, DASHES[number % len(DASHES)], marks[number % len(marks)])


def emphasis(rank: int, of: int) -> _Emphasis:
    """The emphasis of a series by its rank; the best has rank 0."""
    if of > 1 and rank < MAX_NAMES:
        return "named"
    return "muted" if of > _MAX_PLAIN else "plain"


def css() -> str:
    """The rules of every chart; dark colours on a dark screen."""
    dark = f"@media screen and (prefers-color-scheme: dark) {{\n{_theme_css(DARK)}}}\n"
    return f"{_theme_css(LIGHT)}{dark}svg .name {{ paint-order: stroke; stroke-width: 4px; }}\n"


def _theme_css(theme: Theme) -> str:
    rules = {f".m{i}": f"color: {colour}" for i, colour in enumerate(theme.series)}
    rules |= {".ink": f"color: {theme.ink}", "svg .paper": f"fill: {theme.paper}"}
    rules |= {"svg text": f"fill: {theme.ink}; font-size: 14px"}
    rules |= {"svg .name": f"fill: currentColor; stroke: {theme.paper}"}
    rules |= {"svg .rule": f"stroke: {theme.rule}"}
    return "".join(f"{selector} {{ {rule}; }}\n" for selector, rule in rules.items())


def draw(name: str, description: str, x: Scale, y: Scale, series: Sequence[Series]) -> str:
    """A chart for a page; ``name`` and ``description`` are for screen readers."""
    return (
        f'<svg class="chart" role="img" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f"<title>{escape(name)}</title><desc>{escape(description)}</desc>"
        f"{_chart(x, y, series)}</svg>"
    )


def picture(title: str, x: Scale, y: Scale, series: Sequence[Series]) -> str:
    """A complete SVG file: a title, the chart, and a legend to the right of it.

    Later series are on top: a solid line shows through the gaps of a dashed one.
    """
    names = [one.name for one in series]
    legend = _SAMPLE + 8 + CHARACTER * max(map(len, names), default=0)
    width = max(WIDTH + legend, 20 + CHARACTER * len(title))
    height = _TITLE + max(HEIGHT, _TOP + _LEGEND_ROW * len(series))
    rows = "".join(
        f'<g transform="translate({WIDTH} {_TOP + _LEGEND_ROW * i})">{_sample(one)}'
        f"{_text(_SAMPLE + 8, 12, one.name)}</g>"
        for i, one in enumerate(series)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" font-family="system-ui, sans-serif">'
        f"<title>{escape(title)}</title><style>{css()}</style>"
        f'<rect class="paper" width="100%" height="100%"/>'
        f'<g font-weight="600">{_text(6, 22, title)}</g>'
        f'<g transform="translate(0 {_TITLE})">{_chart(x, y, series[::-1])}{rows}</g></svg>\n'
    )


def interval(point: Point, ends: tuple[float, float], number: int) -> str:
    """A value and its interval between two ends, for the cell of a table."""
    width, span = 96, (ends[1] - ends[0]) or 1.0
    values = (ends[0] if v is None else v for v in (point.low, point.y, point.high))
    low, at, high = (width * (value - ends[0]) / span for value in values)
    return (
        f'<svg class="interval {look(number).colour}" viewBox="-6 0 {width + 12} 14" '
        f'aria-hidden="true">{_line((0, 7), (width, 7), "rule")}'
        f"{_line((low, 7), (high, 7), width=2)}{_mark((at, 7), _SHAPES['circle'], 0.875)}</svg>"
    )


def sample(number: int, of: int = 1) -> str:
    """A sample of series ``number`` among ``of``, for the legend of a page."""
    one = Series("", look(number), (), emphasis=emphasis(number, of))
    return f'<svg class="sample" viewBox="0 0 {_SAMPLE} 14" aria-hidden="true">{_sample(one)}</svg>'


def _sample(one: Series) -> str:
    muted = one.emphasis == "muted"
    line = _polyline([(0, 7), (_SAMPLE, 7)], one.look.dash, muted=muted) if one.joined else ""
    mark = _mark((_SAMPLE / 2, 7), one.look.mark, _mark_size(one))
    return f'<g class="{one.look.colour}">{line}{mark}</g>'


def _chart(x: Scale, y: Scale, series: Sequence[Series]) -> str:
    """Axes, series and names. Points without a finite place are left out."""
    lines = [
        one._replace(points=[point for point in one.points if math.isfinite(point.x + point.y)])
        for one in series
    ]
    names = [shorten(one.name, _NAME_CHARACTERS) for one in lines if one.emphasis == "named"]
    right = WIDTH - _RIGHT - CHARACTER * max(map(len, names), default=0)
    left = 14 + CHARACTER * max(len(label) for _, label in y.ticks)
    field = _Field(x, y, left, right)
    order: Sequence[_Emphasis] = ("muted", "plain", "named")
    back_to_front = sorted(lines[::-1], key=lambda one: order.index(one.emphasis))
    drawn = [_series(one, field) for one in back_to_front]
    return "".join([_axes(field), *drawn, _names(lines, field)])


def _axes(field: _Field) -> str:
    """Axes, ticks and labels; the label of the y axis is above it, and says where it starts."""
    (left, bottom), right = field.place(0, 0), field.right
    first, start = field.y.ticks[0]
    parts = [_text(4, 16, f"{field.y.label} (axis from {start})" if first > 0 else field.y.label)]
    for value, label in field.y.ticks:
        _, height = field.place(0, field.y.share(value))
        parts.append(_line((left, height), (right, height), "rule"))
        parts.append(_text(left - 7, height + 4.5, label, "end"))
    for value, label in field.x.ticks:
        across, _ = field.place(field.x.share(value), 0)
        parts.append(_line((across, bottom), (across, bottom + 5), "ink"))
        parts.append(_text(across, bottom + 19, label, "middle"))
    parts.append(_line((left, bottom), (right, bottom), "ink"))
    parts.append(_text((left + right) / 2, HEIGHT - 9, field.x.label, "middle"))
    return "".join(parts)


def _series(one: Series, field: _Field) -> str:
    """The line, intervals and marks of a series; a muted line has one mark, at its end."""
    places, muted = field.places(one.points), one.emphasis == "muted"
    parts = [f'<g class="{one.look.colour}"><title>{escape(one.name)}</title>']
    if one.joined and len(places) > 1:
        parts.append(_polyline(places, one.look.dash, muted=muted))
    every = len(places) if muted else math.ceil(len(places) / MAX_MARKS) if one.joined else 1
    for point, place in list(zip(one.points, places, strict=True))[:: -every or -1]:
        parts.append("" if muted and len(places) > 1 else _whisker(point, place, field))
        parts.append(_mark(place, one.look.mark, _mark_size(one)))
    return "".join([*parts, "</g>"])


def _mark_size(one: Series) -> float:
    if not one.joined and len(one.points) > MAX_MARKS:
        return 0.6
    return 0.7 if one.emphasis == "muted" else 1.0


def _names(lines: Sequence[Series], field: _Field) -> str:
    """The names of the best series beside their ends, with a thin line to a name farther away."""
    ends = {one.name: field.places(one.points)[-1] for one in lines if one.points}
    taken = [Box(x - 5, x + 5, y - 5, y + 5) for x, y in ends.values()]
    parts = []
    for one in lines:
        if one.emphasis != "named" or not one.points:
            continue
        text, (x, y) = shorten(one.name, _NAME_CHARACTERS), ends[one.name]
        half = NAME_HEIGHT / 2
        box = Box(x + 8, x + 8 + CHARACTER * len(text), y - half, y + half)
        moves = (box.moved(sign * 4.0 * step) for step in range(50) for sign in (1, -1))
        free = (b for b in moves if b.inside() and not any(map(b.overlaps, taken)))
        box = next(free, box)
        taken.append(box)
        height = (box.top + box.bottom) / 2
        away = abs(height - y) > half
        leader = _line((x, y), (box.left + 2, height), width=0.75) if away else ""
        label = _text(box.left + 4 * away, height + 4.5, text, css_class="name")
        parts.append(f'<g class="{one.look.colour}">{leader}{label}</g>')
    return "".join(parts)


def _whisker(point: Point, place: _Place, field: _Field) -> str:
    if point.low is None or point.high is None or not math.isfinite(point.low + point.high):
        return ""
    low, high = (field.place(0, field.y.share(value))[1] for value in (point.low, point.high))
    return _line((place[0], low), (place[0], high), width=1.5)


def _mark(place: _Place, path: str, size: float) -> str:
    if not path:
        return ""
    scale = "" if size == 1 else f" scale({size:g})"
    move = f"translate({place[0]:.1f} {place[1]:.1f}){scale}"
    return f'<path d="{path}" transform="{move}" fill="currentColor"/>'


def _polyline(places: Sequence[_Place], dash: str, *, muted: bool) -> str:
    listed = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    width = 'stroke-width="1" stroke-opacity="0.5"' if muted else 'stroke-width="2"'
    return (
        f'<polyline points="{listed}" fill="none" stroke="currentColor" {width} '
        f'stroke-linejoin="round" stroke-dasharray="{dash}"/>'
    )


def _line(start: _Place, end: _Place, css_class: str = "", width: float = 1) -> str:
    (x1, y1), (x2, y2) = start, end
    kind = f' class="{css_class}"' if css_class else ""
    stroke = "" if css_class == "rule" else f' stroke="currentColor" stroke-width="{width:g}"'
    return f'<line{kind} x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"{stroke}/>'


def _text(x: float, y: float, text: str, anchor: str = "start", css_class: str = "") -> str:
    kind = f' class="{css_class}"' if css_class else ""
    return f'<text{kind} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
