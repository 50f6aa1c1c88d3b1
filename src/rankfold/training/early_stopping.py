"""Early stopping: the steps of a fit, the model to keep, and when to stop."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from torch import Tensor

from rankfold.types import Model, Step

FULL_STEP = 100  # updates: an epoch with fewer counts as its share in the patience


def validation_score(notes: Mapping[str, Any]) -> float | None:
    """The validation score of a kept model: of its step or, if self-tuning, of its selection.

    A refit is not scored: its score is that of the fit before it.
    """
    scores = [step["score"] for step in notes.get("history", ()) if "score" in step]
    if scores and not notes.get("is_chosen", True):
        return float(scores[-1])
    return max(scores, default=notes.get("score"))


@dataclass(slots=True)
class History:
    """One phase of a fit so far. The model with the best score is kept.

    Without scores, or if ``is_chosen`` is false, the last model is kept.
    """

    phase: str = "fit"  # fit, or refit on train and validation
    steps: int | None = None  # maximum; None: as many as the method yields
    entries: list[dict[str, Any]] = field(default_factory=list)  # one per step
    number: int = 0  # of the step whose model is kept
    score: float | None = None  # of that model
    model: Model | None = None
    settings: dict[str, Any] = field(default_factory=dict)  # of a refit: selected by the fit
    notes: dict[str, Any] = field(default_factory=dict)  # of a refit: from the model of the fit
    in_passes: bool = False  # only the last step has a model
    is_chosen: bool = True  # the scores select the model
    tensors: Mapping[str, Tensor] = field(default_factory=dict)  # of a refit: from that model

    def note(self, step: Step, score: float | None) -> None:
        """Add a step and, if it was scored, its score."""
        entry = {"phase": self.phase, "step": step.number, "loss": step.loss}
        updates = {} if step.updates is None else {"updates": step.updates}
        scored = {} if score is None else {"score": score}
        entry |= {"seconds": step.seconds, **updates, **step.measured, **scored}
        self.entries.append(entry)
        self.in_passes = self.in_passes or step.model is None
        if score is None or self.score is None or score > self.score or not self.is_chosen:
            self.number, self.score, self.model = step.number, score, step.model

    def is_over(self, step: Step, patience: int) -> bool:
        """True after the last step, or after ``patience`` steps without a better score.

        A step of fewer than ``FULL_STEP`` updates counts as its share: few data make short epochs.
        """
        since = [e for e in self.entries if e["phase"] == self.phase and e["step"] > self.number]
        waited = sum(min(FULL_STEP, e.get("updates", FULL_STEP)) for e in since)
        stalled = self.score is not None and waited >= patience * FULL_STEP
        return step.final or step.number == self.steps or stalled

    def refit(self, tensors: Mapping[str, Tensor]) -> "History":
        """The history of the refit: the same number of steps, with the selected settings.

        The finished model also has ``tensors``, which the fit learnt on validation.
        """
        assert self.model is not None
        return History(
            "refit",
            None if self.in_passes else self.number,
            self.entries,
            settings=dict(self.model.config),
            notes=dict(self.model.notes),
            tensors=tensors,
        )


def timed(fit: Callable[[], Iterator[Step]], before: float = 0.0) -> Iterator[Step]:
    """The steps of a fit with the time spent on each, the start of the fit included.

    A step inside an epoch has the time since the beginning of the epoch. ``before``: the time of
    the epoch before a resume.
    """
    began, spent = perf_counter(), before
    for step in fit():
        spent += perf_counter() - began
        yield step._replace(seconds=spent)
        if step.whole:
            spent = 0.0
        began = perf_counter()


Report = Callable[[History, Step], None]
"""Called after each step; if the step is whole, the last entry of the history is its entry."""
