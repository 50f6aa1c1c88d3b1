"""How a fit goes: its history, the model to keep, and when to stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rankfold.types import Model, Step


def validated(notes: Mapping[str, Any]) -> float | None:
    """The validation score of a kept model: of its step, or the one that it chose itself by.

    Of a refit, which is not scored, that of the fit before it.
    """
    scores = [step["score"] for step in notes.get("history", ()) if "score" in step]
    if scores and not notes.get("is_chosen", True):
        return float(scores[-1])
    return max(scores, default=notes.get("score"))


@dataclass(slots=True)
class History:
    """One phase of a fit so far. The model of the best score is kept; without scores, the last.

    Where the scores say too little to choose by, it is the last one, too.
    """

    phase: str = "fit"  # fit, or refit on train and validation
    steps: int | None = None  # at most so many; None: as many as the method makes
    entries: list[dict[str, Any]] = field(default_factory=list)  # an entry per step
    number: int = 0  # of the step whose model is kept
    score: float | None = None  # of that model
    model: Model | None = None
    settings: dict[str, Any] = field(default_factory=dict)  # chosen by the fit, for the refit
    notes: dict[str, Any] = field(default_factory=dict)  # of the fit's model, likewise
    in_passes: bool = False  # the steps lead to one model, rather than having one each
    is_chosen: bool = True  # by the scores, where there are any

    def note(self, step: Step, score: float | None) -> None:
        """Enter a step and, if it was scored, its score."""
        entry = {
            "phase": self.phase,
            "step": step.number,
            "loss": step.loss,
            "seconds": step.seconds,
        }
        self.entries.append(entry if score is None else {**entry, "score": score})
        self.in_passes = self.in_passes or step.model is None
        if score is None or self.score is None or score > self.score or not self.is_chosen:
            self.number, self.score, self.model = step.number, score, step.model

    def is_over(self, step: Step, patience: int) -> bool:
        """True after the last step, and after ``patience`` steps without a better score."""
        stalled = self.score is not None and step.number - self.number >= patience
        return step.final or step.number == self.steps or stalled

    def refit(self) -> History:
        """What comes after the fit: as many steps, or the passes it takes, with what was chosen."""
        assert self.model is not None
        return History(
            "refit",
            None if self.in_passes else self.number,
            self.entries,
            settings=dict(self.model.config),
            notes=dict(self.model.notes),
        )


Report = Callable[[History, Step], None]
"""Called after each step; the last entry of the history is the step's, if the step is whole."""


def no_report(_history: History, _step: Step) -> None:
    """A ``Report`` that does nothing."""
