"""The one shape of a diagnosis: a question; numbers, a chart and a sentence as the answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from torch import Tensor

from rankfold.notebook import card
from rankfold.tasks.statistics import mean_intervals
from rankfold.types import Kind


class Figure(NamedTuple):
    """A number, and the ends of its 95% interval if it is an estimate."""

    value: float
    low: float | None = None
    high: float | None = None

    def each(self, change: Callable[[float], float]) -> "Figure":
        """The value and the ends, changed by a rising function."""
        ends = (None if one is None else rounded(change(one)) for one in (self.low, self.high))
        return Figure(rounded(change(self.value)), *ends)

    def __str__(self) -> str:
        ends = "" if self.low is None else f" ({self.low:.4g} to {self.high:.4g})"
        return f"{self.value:.4g}{ends}"


class Line(NamedTuple):
    """Named points, joined or as dots. A point is x, y and, with an interval, low and high."""

    name: str
    points: Sequence[tuple[float, ...]]
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
    log: Literal["", "x", "y", "xy"] = ""  # axes with a logarithmic scale


class DiagnosisResult(NamedTuple):
    """The answer of a diagnosis."""

    figures: Mapping[str, Figure]  # by name; the first one answers the question
    follows: str  # a sentence: what follows for the user's model
    details: dict[str, Any]  # all measurements, as JSON
    charts: dict[str, Chart]  # by file name without suffix; one has the name of the diagnosis

    def _repr_html_(self) -> str:
        facts = {name: str(figure) for name, figure in self.figures.items()}
        return card(self.details.get("question", ""), {**facts, "what follows": self.follows})

    @property
    def summary(self) -> dict[str, float]:
        """The values of the figures."""
        return {name: figure.value for name, figure in self.figures.items()}


Subject = Literal["nothing", "data", "model", "training"]
"""What is diagnosed: a formula, prepared data, a fitted model on its data, or a training."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A measurement, selected by name. Its file declares it, and ``DIAGNOSES`` lists it."""

    question: str
    paper: str  # a key in docs/reference/papers.md
    config: type[Any]  # ``Settings`` of the diagnosis
    measure: Callable[..., DiagnosisResult]
    """``(settings, subject, progress)``; the subject is a ``DiagnosedTraining``, a
    ``DiagnosedModel``, a ``DiagnosedData`` or None."""
    subject: Subject
    data: Kind = "interactions"
    method: str = ""  # the default, where a method is fitted or trained
    quick: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the default method in place of its own, so that an answer takes seconds."""
    memory_settings: str = "queries"  # to reduce if memory is short

    @property
    def summary(self) -> str:
        """The question, for lists."""
        return self.question


def rounded(value: float) -> float:
    """A value with six significant digits, which keeps files small."""
    return float(f"{value:.6g}")


def mean_of(values: Tensor) -> Figure:
    """The mean of some values and its interval, by a bootstrap over them."""
    mean = rounded(float(values.double().mean()))
    if len(values) < 2:
        return Figure(mean)
    ((low, high),) = mean_intervals(values[None].double().cpu().numpy())
    return Figure(mean, rounded(low), rounded(high))


def point_of(x: float, values: Tensor) -> tuple[float, ...]:
    """A point of a line: the mean of some values and its interval."""
    figure = mean_of(values)
    ends = () if figure.low is None or figure.high is None else (figure.low, figure.high)
    return (x, figure.value, *ends)


def spaced(low: float, high: float, n: int) -> list[float]:
    """``n`` numbers from ``low`` to ``high`` at equal ratios."""
    return [float(one) for one in np.geomspace(low, high, n)]
