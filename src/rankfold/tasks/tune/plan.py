"""The plan of a search: its space, the points tried first, and its limits."""

import json
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import product
from pathlib import Path
from time import monotonic
from typing import Any, Literal

from rankfold import config
from rankfold.errors import UserError
from rankfold.methods import METHODS, find_method
from rankfold.tasks.fit.plan import FitPlan
from rankfold.tasks.fit.plan import make_plan as make_fit_plan
from rankfold.tasks.options import TuneOptions, parse_budget
from rankfold.types import Choices, Dataset, Graded, Interactions, Space
from rankfold.types.spaces import count_points

DEFAULT_TRIALS = 20  # without trials and budget

State = Literal["complete", "pruned", "failed"]


@dataclass(frozen=True, slots=True)
class Trial:
    """One fit of the search."""

    number: int  # counts from 1
    state: State  # pruned: stopped early because other trials were better at that step
    score: float | None  # on validation; the best so far if pruned, None if failed
    settings: Mapping[str, Any]  # the searched ones
    steps: int
    seconds: float
    message: str | None = None  # the error of a failed trial


def best_of(trials: list[Trial]) -> Trial | None:
    """The complete trial with the highest score; the first of several."""
    finished = [trial for trial in trials if trial.state == "complete"]
    return max(finished, key=lambda trial: trial.score or 0.0, default=None)


@dataclass(frozen=True, slots=True)
class TunePlan:
    """A search: its space and its budget."""

    fit: FitPlan  # with the fixed settings, on data without a test split
    options: TuneOptions
    space: Space
    points: list[dict[str, Any]]  # tried first, in this order
    limit: int | None  # on the number of trials
    budget: float | None  # in seconds
    started: float = 0.0  # start of the budget, on the clock of this process

    @property
    def folder(self) -> Path:
        return Path(self.options.out)

    def has_next(self, done: int) -> bool:
        """Whether another trial follows."""
        if self.limit is not None and done >= self.limit:
            return False
        left = self.seconds_left()
        return left is None or left > 0

    def seconds_left(self) -> float | None:
        """The rest of the budget; None without one."""
        return None if self.budget is None else self.budget - (monotonic() - self.started)

    def share(self, done: float) -> float:
        """The share of the search that is done after ``done`` trials."""
        by_trials = done / self.limit if self.limit else 0.0
        left = self.seconds_left()
        by_time = 0.0 if left is None or self.budget is None else 1 - left / self.budget
        return min(1.0, max(by_trials, by_time))

    def settings(self, trial: Trial) -> dict[str, Any]:
        """The fixed and searched settings of a trial, in the types of the method's config."""
        given = config.build(self.fit.method.config, {**self.options.fixed, **trial.settings})
        return {name: getattr(given, name) for name in (*self.options.fixed, *trial.settings)}

    def fit_arguments(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a trial's fit; ``rankfold fit --config best.toml`` passes the same."""
        options = self.options
        shared = {name: getattr(options, name) for name in ("seed", "device", "patience")}
        shared["metric"] = self.fit.metric
        return {"method": self.fit.name, "data": self.fit.data, **shared, **settings}

    def identity(self) -> dict[str, Any]:
        """Values that an existing study must share with this search to be resumed."""
        space = {name: asdict(where) for name, where in self.space.items()}
        fixed = {name: getattr(self.fit.settings, name) for name in sorted(self.options.fixed)}
        own: dict[str, Any] = {"method": self.fit.name, "data": self.fit.data.fingerprint}
        own |= {"metric": self.fit.metric, "seed": self.options.seed}
        own |= {"fixed": fixed, "space": space}
        own |= {} if self.fit.is_chosen else {"epoch": "last"}
        own |= {} if self.options.patience is None else {"patience": self.options.patience}
        return dict(json.loads(json.dumps(own)))  # the form in which it is read back


def make_plan(method: str, data: Dataset, options: TuneOptions) -> TunePlan:
    """Check everything that can be checked before the first trial."""
    config.check_names(find_method(method).config, options.fixed)
    shared = {name: getattr(options, name) for name in ("seed", "device", "metric", "patience")}
    fit = make_fit_plan(method, replace(data, test=None), {**options.fixed, **shared})
    rows = data.validation
    if rows is None or not (len(rows) if isinstance(rows, Graded) else rows.n_pairs):
        raise UserError(
            "tuning needs a validation split, and the data has none",
            hint="prepare it with --split 0.8,0.1,0.1 or --validation-share 0.1",
        )
    space = {
        name: where for name, where in _space(fit, options).items() if name not in options.fixed
    }
    budget = parse_budget(options.budget)
    limit = DEFAULT_TRIALS if options.trials is None and budget is None else options.trials
    n_points = count_points(space)
    if n_points is not None:
        limit = min(n_points, limit or n_points)
    return TunePlan(fit, options, space, points(fit, space, options.seed), limit, budget)


def _space(fit: FitPlan, options: TuneOptions) -> Space:
    """The space, given by name or as a mapping."""
    if not isinstance(options.space, str):
        config.check_names(fit.method.config, options.space)
        return options.space
    if options.space not in ("usual", "paper"):
        raise UserError(f"there is no space {options.space!r}", hint="use usual or paper")
    if options.space == "usual":
        return fit.method.space
    if fit.method.paper_space is None:
        known = [name for name, method in METHODS.items() if method.paper_space is not None]
        raise UserError(
            f"no paper states a grid for {fit.name}",
            hint=f"methods with a grid: {', '.join(known)}",
        )
    return fit.method.paper_space


def points(fit: FitPlan, space: Space, seed: int) -> list[dict[str, Any]]:
    """The defaults, if they lie in the space; then the rest of a grid, shuffled by the seed."""
    settings, train = fit.settings, fit.data.train
    if isinstance(train, Interactions) and isinstance(settings, config.Settings):
        settings = settings.for_data(train, fit.comm)
    defaults = {name: getattr(settings, name) for name in space}
    inside = all(where.holds(defaults[name]) for name, where in space.items())
    first = [defaults] if inside else []
    if count_points(space) is None:
        return first
    values = [where.values for where in space.values() if isinstance(where, Choices)]
    grid = [dict(zip(space, point, strict=True)) for point in product(*values)]
    random.Random(seed_of(seed, 0)).shuffle(grid)
    return first + [point for point in grid if point not in first]


def seed_of(seed: int, number: int) -> int:
    """A 32-bit seed for one trial."""
    return int.from_bytes(sha256(f"{seed}/{number}".encode()).digest()[:4], "big")
