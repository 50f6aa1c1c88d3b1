"""What is to be searched: the space, the points that come first, how long it goes on."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from itertools import product
from pathlib import Path
from time import monotonic
from typing import Any, Literal

from rankfold import config
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.tasks.fit import Job, find_method, plan
from rankfold.types import Choices, Dataset, Graded, Progress, Space, silent
from rankfold.types.spaces import count_points

USUAL_TRIALS = 20  # where neither trials nor a budget are given

State = Literal["complete", "pruned", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """How to search, whatever the method."""

    out: str | Path  # a new folder, or that of the same search, which goes on
    trials: int | None = None  # at most so many, earlier calls included
    budget: float | str | None = None  # of all trials together: seconds, or 120s, 2m, 1h
    metric: str | None = None  # the validation score; None: that of ``fitting.USUAL``
    seed: int = 0  # of the search, and of every fit
    space: str | Space = "usual"  # usual, paper, or one's own
    fixed: Mapping[str, Any] = field(default_factory=dict)  # settings that are not searched
    device: str = "auto"
    report: Progress = silent  # told after each step


@dataclass(frozen=True, slots=True)
class Trial:
    """One fit of the search."""

    number: int  # counts from 1
    state: State  # pruned: cut short because others were better by then
    score: float | None  # on validation; of a pruned one the best so far, of a failed one None
    settings: Mapping[str, Any]  # those that were searched
    steps: int
    seconds: float
    message: str | None = None  # why it failed


def best_of(trials: list[Trial]) -> Trial | None:
    """The finished trial of the highest score, the first of equal ones."""
    finished = [trial for trial in trials if trial.state == "complete"]
    return max(finished, key=lambda trial: trial.score or 0.0, default=None)


def parse_budget(given: float | str) -> float:
    """Seconds: ``120``, ``"120s"``, ``"2m"``, ``"1.5h"``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", str(given).strip())
    seconds = float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]] if found else 0.0
    if not 0 < seconds < math.inf:
        raise UserError(f"the budget cannot be {given!r}", hint="write 120s, 2m or 1h")
    return seconds


@dataclass(frozen=True, slots=True)
class Search:
    """What is to be searched."""

    job: Job  # with the settings that are fixed, on data without a test split
    how: Tuning
    space: Space
    points: list[dict[str, Any]]  # to be tried first, in this order
    limit: int | None  # of trials
    budget: float | None  # in seconds
    began: float = 0.0  # when the budget began, on the clock of this process

    @property
    def folder(self) -> Path:
        return Path(self.how.out)

    def goes_on(self, done: int) -> bool:
        """Whether there is another trial to be made."""
        if self.limit is not None and done >= self.limit:
            return False
        left = self.left()
        return left is None or left > 0

    def left(self) -> float | None:
        """Seconds of the budget."""
        return None if self.budget is None else self.budget - (monotonic() - self.began)

    def share(self, done: float) -> float:
        """How much of the search is over after some trials."""
        by_trials = done / self.limit if self.limit else 0.0
        left = self.left()
        by_time = 0.0 if left is None or self.budget is None else 1 - left / self.budget
        return min(1.0, max(by_trials, by_time))

    def settings(self, trial: Trial) -> dict[str, Any]:
        """All that was given to a trial, as the method's config has it."""
        given = config.build(self.job.method.config, {**self.how.fixed, **trial.settings})
        return {name: getattr(given, name) for name in (*self.how.fixed, *trial.settings)}

    def fitting(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """What a trial's fit is given; ``rankfold fit --config best.toml`` gives the same."""
        how = {"seed": self.how.seed, "device": self.how.device, "metric": self.job.metric}
        return {"method": self.job.name, "data": self.job.data, **how, **settings}

    def identity(self) -> dict[str, Any]:
        """What must be equal for a study to be one of this search."""
        space = {name: asdict(where) for name, where in self.space.items()}
        fixed = {name: getattr(self.job.settings, name) for name in sorted(self.how.fixed)}
        own: dict[str, Any] = {"method": self.job.name, "data": self.job.data.fingerprint}
        own |= {"metric": self.job.metric, "seed": self.how.seed, "fixed": fixed, "space": space}
        own |= {} if self.job.is_chosen else {"epoch": "last"}
        found: dict[str, Any] = json.loads(json.dumps(own))  # as it is read again
        return found


def make_plan(method: str, data: Dataset, how: Tuning) -> Search:
    """Check everything that can be checked before the first trial."""
    config.check_names(find_method(method).config, how.fixed)
    options = {**how.fixed, "seed": how.seed, "device": how.device, "metric": how.metric}
    job = plan(method, replace(data, test=None), options)
    held_out = data.validation
    if held_out is None or not (
        len(held_out) if isinstance(held_out, Graded) else held_out.n_pairs
    ):
        raise UserError(
            "tuning compares settings on validation, and the data has no such split",
            hint="prepare it with --split 0.8,0.1,0.1 or --validation-share 0.1",
        )
    if how.trials is not None and how.trials < 1:
        raise UserError(f"trials is {how.trials}", hint="it is at least 1")
    space = {name: where for name, where in _space(job, how).items() if name not in how.fixed}
    budget = None if how.budget is None else parse_budget(how.budget)
    limit = USUAL_TRIALS if how.trials is None and budget is None else how.trials
    n_points = count_points(space)
    if n_points is not None:
        limit = min(n_points, limit or n_points)
    return Search(job, how, space, points(job, space, how.seed), limit, budget)


def _space(job: Job, how: Tuning) -> Space:
    """The space by its name; one's own must fit the method."""
    if not isinstance(how.space, str):
        config.check_names(job.method.config, how.space)
        return how.space
    if how.space not in ("usual", "paper"):
        raise UserError(f"there is no space {how.space!r}", hint="it is usual or paper")
    if how.space == "usual":
        return job.method.space
    if job.method.paper_space is None:
        known = [name for name, method in METHODS.items() if method.paper_space is not None]
        raise UserError(
            f"no paper states a grid for {job.name}", hint=f"there is one for {', '.join(known)}"
        )
    return job.method.paper_space


def points(job: Job, space: Space, seed: int) -> list[dict[str, Any]]:
    """The defaults, if they lie in the space; then, of a grid, all else in an order by the seed."""
    usual = {name: getattr(job.settings, name) for name in space}
    inside = all(where.holds(usual[name]) for name, where in space.items())
    first = [usual] if inside else []
    if count_points(space) is None:
        return first
    values = [where.values for where in space.values() if isinstance(where, Choices)]
    grid = [dict(zip(space, point, strict=True)) for point in product(*values)]
    random.Random(seed_of(seed, 0)).shuffle(grid)
    return first + [point for point in grid if point not in first]


def seed_of(seed: int, number: int) -> int:
    """A seed for one trial: 32 bits."""
    return int.from_bytes(sha256(f"{seed}/{number}".encode()).digest()[:4], "big")
