"""The one shape of a diagnosis: a question; numbers, a chart and a sentence as the answer."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_type_hints

from torch import Tensor

from rankfold.notebook import card
from rankfold.tasks.diagnose.figures import Figure, as_figure, mean_of, plain
from rankfold.types import Kind


class Line(NamedTuple):
    """Named points, joined or as dots. A point is x, y and, with an interval, low and high."""

    name: str
    points: Sequence[tuple[float, ...]]
    style: Literal["line", "dots"] = "line"

    @classmethod
    def through(cls, name: str, places: Iterable[float], values: Iterable[float]) -> "Line":
        """Through the value at each place."""
        return cls(name, list(zip(map(float, places), values, strict=True)))

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

    @classmethod
    def of(
        cls,
        figures: Mapping[str, Any],
        follows: str,
        details: Mapping[str, Any],
        charts: dict[str, Chart],
    ) -> "DiagnosisResult":
        """From measurements: figures, numbers, and tensors of values whose mean is estimated."""
        estimates = {name: as_figure(one) for name, one in figures.items()}
        return cls(estimates, follows, plain(details), charts)

    def __repr__(self) -> str:
        lines = [f"{name}: {figure}" for name, figure in self.figures.items()]
        return "\n".join([self.details.get("question", ""), *lines, self.follows])

    def _repr_html_(self) -> str:
        facts = {name: str(figure) for name, figure in self.figures.items()}
        return card(self.details.get("question", ""), {**facts, "what follows": self.follows})

    @property
    def summary(self) -> dict[str, float]:
        """The values of the figures."""
        return {name: figure.value for name, figure in self.figures.items()}


class Paper(NamedTuple):
    """A paper with theorems, and the model that they are about."""

    key: str  # in docs/reference/papers.md
    data: Kind
    method: str  # that is fitted or trained by default
    quick: Mapping[str, Any] = MappingProxyType({})
    """Settings of that method in place of its own, so that an answer takes seconds."""


RG2 = Paper("rg2", "interactions", "rg2-plain")
CHEN2022 = Paper("chen2022", "interactions", "ssl-pop", {"epochs": 10, "batch_size": 512})
SIAMESE = Paper("siamesexml", "texts", "siamesexml")
CBA = Paper("cba", "graded", "cba", {"epochs": 10})

Subject = Literal["nothing", "data", "model", "training"]
"""What is diagnosed: a formula, prepared data, a fitted model on its data, or a training."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A measurement, selected by name. Its file declares it, and ``DIAGNOSES`` lists it."""

    summary: str  # the question
    paper: Paper
    measure: Callable[..., DiagnosisResult]
    """``(config: Settings, subject, progress)``; the type of the subject says what is diagnosed:
    ``DiagnosedTraining``, ``DiagnosedModel``, ``DiagnosedData`` or None."""

    @property
    def config(self) -> type[Any]:
        kind: type[Any] = next(iter(get_type_hints(self.measure).values()))
        return kind

    @property
    def subject(self) -> Subject:
        _config, kind, *_ = get_type_hints(self.measure).values()
        return _SUBJECTS.get(kind.__name__, "nothing")

    @property
    def method(self) -> str:
        """The method that is fitted or trained by default, if one is."""
        return self.paper.method if self.subject in ("model", "training") else ""


_SUBJECTS: dict[str, Subject] = {
    "DiagnosedData": "data",
    "DiagnosedModel": "model",
    "DiagnosedTraining": "training",
}
