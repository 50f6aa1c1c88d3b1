"""The one shape of a diagnosis: a question; numbers, a chart and a sentence as the answer."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from torch import Tensor

from rankfold.notebook import card
from rankfold.tasks.diagnose.figures import Figure, mean_of
from rankfold.types import Kind


class Line(NamedTuple):
    """Named points, joined or as dots. A point is x, y and, with an interval, low and high."""

    name: str
    points: Sequence[tuple[float, ...]]
    style: Literal["line", "dots"] = "line"

    @classmethod
    def of_means(cls, name: str, places: Iterable[float], values: Iterable[Tensor]) -> "Line":
        """Through the mean of the values at each place, with its interval."""
        means = ((x, *mean_of(one)) for x, one in zip(places, values, strict=True))
        return cls(name, [tuple(one for one in mean if one is not None) for mean in means])


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
