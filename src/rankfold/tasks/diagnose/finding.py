"""What a diagnosis finds: plain data, and what of it is to be drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple


class Line(NamedTuple):
    """Points that belong together, under a name."""

    name: str
    points: Sequence[tuple[float, float]]
    style: Literal["line", "dots"] = "line"


class Level(NamedTuple):
    """A value to compare with, the same everywhere."""

    name: str
    value: float


class Chart(NamedTuple):
    """Lines over a common axis; ``report.pictures`` draws it."""

    title: str
    x: str  # what is along, with its unit
    y: str  # what is up, with its unit
    lines: Sequence[Line]
    levels: Sequence[Level] = ()
    ends: tuple[float, float] | None = None  # of what is up; None: by the values


class Finding(NamedTuple):
    """What came out."""

    summary: dict[str, float]  # the figures to read first, by what they are
    details: dict[str, Any]  # everything, as plain JSON
    charts: dict[str, Chart]  # by what their files are called


def rounded(value: float) -> float:
    """With six digits: more are not measured, and files stay small."""
    return float(f"{value:.6g}")
