"""Lines over a common axis as a picture, with a legend beside them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rankfold.report.svg import COLOURS, DASHES, FAINT, INK, picture, text
from rankfold.tasks.diagnose.finding import Chart, Level, Line

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 820, 420, 74, 230, 44, 56
LEGEND = WIDTH - RIGHT + 20  # where it begins
SAMPLE = 30  # the length of a line in it
FEW = 12  # points of a line that are marked one by one
TICKS = 6  # of an axis, about
COMPARED = (INK, "5 4", 1.5)  # the stroke of a level

Place = Callable[[float, float], tuple[float, float]]


def curves_svg(chart: Chart) -> str:
    """An SVG of a chart: lines differ in dash as well as in colour.

    Values are shown from 0, unless less than half of the height were left to them. Points that are
    no numbers are left out.
    """
    lines = [line._replace(points=_finite(line.points)) for line in chart.lines]
    points = [point for line in lines for point in line.points]
    values = [y for _, y in points] + [level.value for level in chart.levels]
    left, right = _ends(_from_zero([x for x, _ in points]))
    slack = 1e-9 * (right - left)  # ticks are rounded
    xs = [x for x in ticks([left, right]) if left - slack <= x <= right + slack]
    ys = ticks(chart.ends or _from_zero(values))

    def place(x: float, y: float) -> tuple[float, float]:
        across, up = (x - left) / (right - left), (y - ys[0]) / (ys[-1] - ys[0])
        return (
            LEFT + (WIDTH - LEFT - RIGHT) * across,
            HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * up,
        )

    parts = [_frame(chart, xs, ys, place)]
    for _, value in chart.levels:
        parts.append(_stroke(place(left, value), place(right, value), *COMPARED))
    parts += [_line(line, i, place) for i, line in enumerate(lines)]
    parts.append(_legend(lines, chart.levels))
    return picture("".join(parts), WIDTH, HEIGHT, chart.title)


def ticks(values: Sequence[float]) -> list[float]:
    """Round numbers in even steps, the first and the last around all values."""
    low, high = _ends(values)
    rough = (high - low) / TICKS
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * i for i in range(first, last + 1)]


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """The least and the largest value, apart also where they are not."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    return (low, high) if high - low > 1e-9 * abs(high) else (low, low + (abs(low) or 1.0))


def _from_zero(values: list[float]) -> list[float]:
    low, high = min(values, default=0.0), max(values, default=0.0)
    return [0.0, *values] if 0 < 2 * low <= high else values


def _finite(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    return [point for point in points if all(map(math.isfinite, point))]


def _frame(chart: Chart, xs: Sequence[float], ys: Sequence[float], place: Place) -> str:
    """Title, axes, ticks and their names."""
    left, right, top, bottom = LEFT, WIDTH - RIGHT, TOP, HEIGHT - BOTTOM
    parts = [f'<g font-weight="600">{text(left, 22, chart.title)}</g>']
    for y in ys:
        _, height = place(xs[0], y)
        parts.append(_stroke((left, height), (right, height), FAINT))
        parts.append(text(left - 8, height + 4, f"{y:.6g}", anchor="end"))
    for x in xs:
        across, _ = place(x, ys[0])
        parts.append(_stroke((across, bottom), (across, bottom + 5), INK))
        parts.append(text(across, bottom + 20, f"{x:.6g}", anchor="middle"))
    parts.append(_stroke((left, bottom), (right, bottom), INK))
    parts.append(text((left + right) / 2, HEIGHT - 12, chart.x, anchor="middle"))
    middle = (top + bottom) / 2
    upwards = text(0, 0, chart.y, anchor="middle")
    parts.append(f'<g transform="translate(18 {middle:.1f}) rotate(-90)">{upwards}</g>')
    return "".join(parts)


def _line(line: Line, number: int, place: Place) -> str:
    places = [place(*point) for point in line.points]
    parts = []
    if line.style == "line":
        listed = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(
            f'<polyline points="{listed}" fill="none" stroke="{_colour(number)}" '
            f'stroke-width="2" stroke-linejoin="round" stroke-dasharray="{_dash(number)}"/>'
        )
    if line.style == "dots" or len(places) <= FEW:
        parts += [_dot(point, number) for point in places]
    return "".join(parts)


def _legend(lines: Sequence[Line], levels: Sequence[Level]) -> str:
    """What each line is, from the top."""
    parts = []
    entries: list[Line | Level] = [*lines, *levels]
    for i, entry in enumerate(entries):
        foot = TOP + 12 + 22 * i
        height = foot - 4.5  # the middle of a letter
        start, middle, end = ((LEGEND + SAMPLE * part, height) for part in (0, 0.5, 1))
        if isinstance(entry, Level):
            parts.append(_stroke(start, end, *COMPARED))
        elif entry.style == "line":
            parts.append(_stroke(start, end, _colour(i), _dash(i), 2))
        else:
            parts.append(_dot(middle, i))
        parts.append(text(LEGEND + SAMPLE + 8, foot, entry.name))
    return "".join(parts)


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _dash(number: int) -> str:
    return DASHES[number % len(DASHES)]


def _dot(point: tuple[float, float], number: int) -> str:
    x, y = point
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{_colour(number)}"/>'


def _stroke(
    start: tuple[float, float],
    end: tuple[float, float],
    colour: str,
    dash: str = "",
    width: float = 1,
) -> str:
    (x1, y1), (x2, y2) = start, end
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width:g}" stroke-dasharray="{dash}"/>'
    )
