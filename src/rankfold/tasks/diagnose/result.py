"""The result of a diagnosis: plain data and the charts to draw."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple


class Line(NamedTuple):
    """Named points, joined or as dots."""

    name: str
    points: Sequence[tuple[float, float]]
    style: Literal["line", "dots"] = "line"


class Level(NamedTuple):
    """A constant to compare with."""

    name: str
    value: float


class Chart(NamedTuple):
    """Lines over common axes; ``report.pictures`` draws it."""

    title: str
    x: str  # label with the unit
    y: str  # label with the unit
    lines: Sequence[Line]
    levels: Sequence[Level] = ()
    ends: tuple[float, float] | None = None  # of the y axis; None: from the values


class DiagnosisResult(NamedTuple):
    """The measurements of a diagnosis."""

    summary: dict[str, float]  # the main figures by name
    details: dict[str, Any]  # all measurements, as JSON
    charts: dict[str, Chart]  # by file name without suffix


def rounded(value: float) -> float:
    """A value with six significant digits, which keeps files small."""
    return float(f"{value:.6g}")
