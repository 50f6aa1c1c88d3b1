"""A method with known best settings, for searches."""

import signal
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import torch
from planted import dense

import rankfold as rf
from rankfold.tasks.tune import TuneResult
from rankfold.types import Dataset, Model, Range, Run, Step

SMALL = {"width": 8, "sweeps": 3}
LEVELS = Range(0.0, 1.0)


class Stopped(Exception):
    """In place of a kill: nothing is cleaned up."""


@dataclass(frozen=True, slots=True)
class Level:
    """Serves a share of the queries perfectly; the first steps are worse."""

    level: float = 0.5
    other: int = 0
    steps: int = 1
    fault: str = "none"


def fit_level(data: Dataset, settings: Level, _run: Run) -> Iterator[Step]:
    if settings.fault == "refused" or (settings.fault == "low" and settings.level < 0.5):
        raise rf.UserError(f"level {settings.level} is too low")
    wanted = dense(data.split("validation")).float()
    for number in range(1, settings.steps + 1):
        if settings.fault == "interrupt" and number == settings.steps:
            signal.raise_signal(signal.SIGINT)
        share = settings.level * number / settings.steps
        served = torch.arange(len(wanted)) < share * len(wanted)
        queries = torch.where(served[:, None], wanted, -wanted)
        tensors = {"queries": queries, "candidates": torch.eye(wanted.shape[1])}
        model = Model("level", asdict(settings), tensors)
        loss = float("nan") if settings.fault == "nan" else 0.0
        yield Step(number, loss, model, dict, number == settings.steps)


def outcomes(tuned: TuneResult) -> list[tuple[object, ...]]:
    """The trials without their times."""
    return [(one.number, one.state, one.score, one.settings, one.steps) for one in tuned.trials]


def same_model(one: TuneResult, other: TuneResult) -> bool:
    ours, theirs = one.model.model.tensors, other.model.model.tensors
    return all(torch.equal(ours[name], theirs[name]) for name in ours.keys() | theirs.keys())
