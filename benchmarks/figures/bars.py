"""Bar charts as SVG files, one in light and one in dark colours."""

from collections.abc import Sequence
from html import escape
from textwrap import wrap
from typing import NamedTuple

WIDTH, _BAR, _GAP, _GROUP = 520, 20, 6, 30  # narrow: readable on a phone
_CHARACTER = 8.0  # at least the width of a character
_TITLE = 54  # characters in a line of the title


class Theme(NamedTuple):
    """Colours; text has a contrast of at least 4.5 with the paper."""

    paper: str
    ink: str
    soft: str
    ours: str
    theirs: str


LIGHT = Theme("#ffffff", "#1b1f24", "#57606a", "#0b6bcb", "#b8c0ca")
DARK = Theme("#15181c", "#e8eaed", "#a3acb8", "#56b4e9", "#4c5663")


class Bar(NamedTuple):
    """A value with its name; ``text`` is shown beside the bar."""

    name: str
    value: float
    text: str
    ours: bool


class Group(NamedTuple):
    """Bars under a common heading; the longest bar of a group has the full length."""

    name: str
    bars: Sequence[Bar]


def draw(title: str, groups: Sequence[Group], theme: Theme, *, common: bool = False) -> str:
    """A chart of horizontal bars; with ``common`` all groups have one scale."""
    lines = wrap(title, _TITLE)
    parts = [
        _text(0, 22 * n, line, theme.ink, weight=700, size=17) for n, line in enumerate(lines, 1)
    ]
    top = 36.0 + 22 * len(lines)
    bars = [bar for group in groups for bar in group.bars]
    label = max(len(bar.name) for bar in bars) * _CHARACTER
    most = WIDTH - label - max(len(bar.text) for bar in bars) * _CHARACTER - 8
    highest = max(bar.value for bar in bars)
    for group in groups:
        largest = highest if common else max(bar.value for bar in group.bars)
        parts.append(_text(0, top, group.name, theme.soft, weight=600))
        top += 10
        for bar in group.bars:
            length = max(2.0, most * bar.value / (largest or 1.0))
            colour = theme.ours if bar.ours else theme.theirs
            middle = top + _BAR / 2 + 4.5
            parts.append(_text(label - 8, middle, bar.name, theme.ink, anchor="end"))
            parts.append(
                f'<rect x="{label:g}" y="{top:g}" width="{length:.1f}" height="{_BAR}" rx="3" '
                f'fill="{colour}"/>'
            )
            weight = 600 if bar.ours else 400
            parts.append(_text(label + length + 8, middle, bar.text, theme.ink, weight=weight))
            top += _BAR + _GAP
        top += _GROUP - _GAP
    height = top - 14
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="-16 -8 {WIDTH + 32} '
        f'{height + 16:g}" width="{WIDTH + 32}" height="{height + 16:g}" '
        f'font-family="system-ui, -apple-system, Segoe UI, Roboto, sans-serif">'
        f'<title>{escape(title)}</title><rect x="-16" y="-8" width="100%" height="100%" rx="8" '
        f'fill="{theme.paper}"/>{"".join(parts)}</svg>\n'
    )


def _text(
    x: float, y: float, text: str, colour: str, *, anchor: str = "start", weight: int = 400,
    size: int = 14,
) -> str:  # fmt: skip
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}" '
        f'font-weight="{weight}" font-size="{size}">{escape(text)}</text>'
    )
