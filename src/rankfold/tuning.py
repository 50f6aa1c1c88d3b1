"""Look for better settings of a method: fit it again and again, keep what validation likes best.

A folder holds the search: ``study.db`` (Optuna's, SQLite), ``trials.csv``, ``best.toml`` (settings
for ``rankfold fit --config``) and ``model`` (of the best trial). What a trial is given follows from
the seed, its number and the results before it. So a search that was killed goes on as if it had not
been, unless its budget is time.
"""

from __future__ import annotations

import csv
import io
import json
import math
import random
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from hashlib import sha256
from itertools import product
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from rankfold import config
from rankfold.data.prepare import as_data
from rankfold.data.reading import silent
from rankfold.errors import UserError
from rankfold.evaluation import evaluate
from rankfold.fitting import Job, find_method, fit, patient_interrupt, plan
from rankfold.grader import Grader, load
from rankfold.growing import exists
from rankfold.methods.spaces import PAPER, SPACES, Choices, Range, Space, count_points
from rankfold.ranker import Ranker
from rankfold.store import put
from rankfold.training.course import Course
from rankfold.types import Dataset, Graded, Progress, Step

if TYPE_CHECKING:
    import optuna

USUAL_TRIALS = 20  # where neither trials nor a budget are given
AT_RANDOM = 8  # trials before what was learnt from them guides the next
UNPRUNED = 4  # trials that run to their end before others may be cut short
UNPRUNED_STEPS = 3  # of every trial
STUDY, TRIALS, BEST, MODEL = "study.db", "trials.csv", "best.toml", "model"
FAILURES = (UserError, ArithmeticError, LinAlgError)  # of one trial: the search goes on

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


@dataclass(frozen=True, slots=True)
class Tuned:
    """What a search found."""

    settings: Mapping[str, Any]  # the best, with those that were fixed: ``fit(method, **settings)``
    score: float
    metric: str
    trials: list[Trial]
    model: Ranker | Grader  # of the best trial

    @property
    def best(self) -> Trial:
        found = best_of(self.trials)
        assert found is not None
        return found


def tune(method: str, data: Any, *, out: str | Path, **options: Any) -> Tuned:
    """Search for the settings of a method that score best on validation.

    The test split is never looked at. The first trial has the method's own defaults, if they lie
    in the space. A space of choices alone is a grid: each of its points is tried once, in an order
    drawn by the seed. A method that selects itself does so in each trial; with nothing more to
    search it is fitted once. A trial that fails is kept with its message; if all do it is an error.

    Args:
        method: a key of ``METHODS``.
        data: prepared data with a validation split, or its folder.
        out: the folder of the search; one that is there goes on, if it is of the same search.
        options: the fields of ``Tuning``: trials, budget, metric, seed, space, fixed, device,
            report.
    """
    how = config.build(Tuning, {"out": out, **options})
    search = _plan(method, as_data(data), how)
    with _opened(search) as study, patient_interrupt() as interrupted:
        trials = _trials(study)
        search = replace(search, began=monotonic() - sum(trial.seconds for trial in trials))
        while search.goes_on(len(trials)):
            _try(search, study, trials)
            trials = _trials(study)
            _write(search, trials)
            if interrupted():
                raise KeyboardInterrupt
    best = best_of(trials)
    if best is None:
        hint = f"{len(trials)} of {len(trials)} trials failed; {search.folder / TRIALS} says why"
        raise UserError(trials[0].message or "no trial was finished", hint=hint)
    _write(search, trials)
    assert best.score is not None
    model = _model_of(search, best)
    return Tuned(search.settings(best), best.score, search.job.metric, trials, model)


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


# ---------------------------------------------------------------------------------- the plan


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

    def identity(self) -> dict[str, Any]:
        """What must be equal for a study to be one of this search."""
        space = {name: asdict(where) for name, where in self.space.items()}
        fixed = {name: getattr(self.job.settings, name) for name in sorted(self.how.fixed)}
        own: dict[str, Any] = {"method": self.job.name, "data": self.job.data.fingerprint}
        own |= {"metric": self.job.metric, "seed": self.how.seed, "fixed": fixed, "space": space}
        found: dict[str, Any] = json.loads(json.dumps(own))  # as it is read again
        return found


def _plan(method: str, data: Dataset, how: Tuning) -> Search:
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
    return Search(job, how, space, _points(job, space, how.seed), limit, budget)


def _space(job: Job, how: Tuning) -> Space:
    """The space by its name; one's own must fit the method."""
    if how.space == "paper" and job.name not in PAPER:
        raise UserError(
            f"no paper states a grid for {job.name}", hint=f"there is one for {', '.join(PAPER)}"
        )
    if not isinstance(how.space, str):
        config.check_names(job.method.config, how.space)
        return how.space
    if how.space not in ("usual", "paper"):
        raise UserError(f"there is no space {how.space!r}", hint="it is usual or paper")
    return PAPER[job.name] if how.space == "paper" else SPACES.get(job.name, {})


def _points(job: Job, space: Space, seed: int) -> list[dict[str, Any]]:
    """The defaults, if they lie in the space; then, of a grid, all else in an order by the seed."""
    usual = {name: getattr(job.settings, name) for name in space}
    inside = all(where.holds(usual[name]) for name, where in space.items())
    first = [usual] if inside else []
    if count_points(space) is None:
        return first
    values = [where.values for where in space.values() if isinstance(where, Choices)]
    grid = [dict(zip(space, point, strict=True)) for point in product(*values)]
    random.Random(_seed(seed, 0)).shuffle(grid)
    return first + [point for point in grid if point not in first]


def _seed(seed: int, number: int) -> int:
    """A seed for one trial: 32 bits."""
    return int.from_bytes(sha256(f"{seed}/{number}".encode()).digest()[:4], "big")


# ---------------------------------------------------------------------------------- the study


@contextmanager
def _opened(search: Search) -> Iterator[optuna.Study]:
    """The study of the folder, made if it is not there; trials that were cut off have failed."""
    optuna = _optuna()
    _check_folder(search.folder)
    try:
        storage = optuna.storages.RDBStorage(
            f"sqlite:///{quote(str((search.folder / STUDY).absolute()))}"
        )
    except Exception as error:
        raise UserError(
            f"cannot open {search.folder / STUDY}: {str(error).splitlines()[0]}",
            hint="remove the folder, or choose another --out",
        ) from error
    try:
        pruner = optuna.pruners.MedianPruner(UNPRUNED, UNPRUNED_STEPS + 1)  # steps count from 1
        study = optuna.create_study(
            storage=storage,
            study_name="rankfold",
            direction="maximize",
            pruner=pruner,
            load_if_exists=True,
        )
        _check_same(search, study)
        for left in study.get_trials(states=(optuna.trial.TrialState.RUNNING,)):
            study.tell(left.number, state=optuna.trial.TrialState.FAIL)
        yield study
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise UserError(
            "tuning needs optuna, which is not installed", hint="pip install 'rankfold[tune]'"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _check_folder(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
        strange = not (folder / STUDY).exists() and any(folder.iterdir())
    except FileNotFoundError:
        raise UserError(f"there is no folder {folder.parent}", hint="create it first") from None
    except OSError as error:
        raise UserError(
            f"cannot write into {folder}: {error.strerror}", hint="choose another --out"
        ) from None
    if strange:
        raise UserError(
            f"{folder} holds something else than a search",
            hint="choose another --out; nothing was changed",
        )


def _check_same(search: Search, study: optuna.Study) -> None:
    """A UserError for the study of another search; a new one is marked as that of this."""
    wanted, there = search.identity(), study.user_attrs.get("search")
    if there is None:
        study.set_user_attr("search", wanted)
        return
    for name, value in wanted.items():
        if there.get(name) != value:
            what = f"with {name} {there.get(name)}, not {value}"
            other = {"data": "on other data", "space": "in another space"}.get(name, what)
            raise UserError(
                f"{search.folder} is a search {other}",
                hint="choose another --out, or give what it was begun with",
            )


def _trials(study: optuna.Study) -> list[Trial]:
    """The trials that count: those that were cut off are made again under the same number."""
    from optuna.trial import TrialState

    states: dict[TrialState, State] = {
        TrialState.COMPLETE: "complete",
        TrialState.PRUNED: "pruned",
        TrialState.FAIL: "failed",
    }
    found: list[Trial] = []
    for one in study.get_trials(deepcopy=False, states=tuple(states)):
        state, noted = states[one.state], one.user_attrs.get("noted", {"message": None})
        if state == "failed" and noted["message"] is None:
            continue
        score = max(one.intermediate_values.values()) if state == "pruned" else one.value
        found.append(Trial(len(found) + 1, state, score, one.params, **noted))
    return found


# ---------------------------------------------------------------------------------- a trial


def _try(search: Search, study: optuna.Study, before: list[Trial]) -> None:
    """Make the next trial, and keep its model if it is the best."""
    from optuna import TrialPruned
    from optuna.trial import TrialState

    number, began = len(before) + 1, monotonic()
    trial = _ask(search, study, number)
    settings = {name: _suggest(trial, name, where) for name, where in search.space.items()}
    watch = _Watch(search, trial, number, best_of(before))
    search.how.report(watch.headline, search.share(len(before)))
    score, state, message = None, TrialState.COMPLETE, None
    try:
        options = _fitting(search, {**search.how.fixed, **settings})
        model = fit(**options, seconds=_at_least_0(search.left()), report=watch)
        score = watch.course.score if watch.course.score is not None else _score(search, model)
        if watch.best is None or score > (watch.best.score or 0.0):
            _save(search, model, number)
    except TrialPruned:
        state = TrialState.PRUNED
    except FAILURES as error:
        state, message = TrialState.FAIL, str(error)
    steps, seconds = len(watch.course.history), monotonic() - began
    trial.set_user_attr("noted", {"steps": steps, "seconds": seconds, "message": message})
    study.tell(trial, score, state=state)


def _ask(search: Search, study: optuna.Study, number: int) -> optuna.Trial:
    """A trial whose settings follow from its number and the results before it."""
    from optuna.samplers import TPESampler
    from optuna.trial import TrialState

    study.sampler = TPESampler(
        n_startup_trials=AT_RANDOM, seed=_seed(search.how.seed, number), constant_liar=False
    )
    given = number <= len(search.points)
    if given and search.space and not study.get_trials(states=(TrialState.WAITING,)):
        study.enqueue_trial(search.points[number - 1])
    return study.ask()


def _suggest(trial: optuna.Trial, name: str, where: Range | Choices) -> Any:
    if isinstance(where, Choices):
        return trial.suggest_categorical(name, where.values)
    if where.whole:
        return trial.suggest_int(name, int(where.low), int(where.high), log=where.log)
    return trial.suggest_float(name, where.low, where.high, log=where.log)


def _fitting(search: Search, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a trial's fit is given; ``rankfold fit --config best.toml`` gives the same."""
    how = {"seed": search.how.seed, "device": search.how.device, "metric": search.job.metric}
    return {"method": search.job.name, "data": search.job.data, **how, **settings}


def _at_least_0(seconds: float | None) -> float | None:
    return None if seconds is None else max(0.0, seconds)


def _score(search: Search, model: Ranker | Grader) -> float:
    """The validation score of a model whose steps had none: its method selects itself."""
    found = evaluate(model, search.job.data, split="validation", metrics=[search.job.metric])
    return float(next(iter(found.metrics.values())))


@dataclass(slots=True)
class _Watch:
    """The report of a trial's fit: tells the pruner and the person, keeps the course."""

    search: Search
    trial: optuna.Trial
    number: int
    best: Trial | None
    course: Course = field(default_factory=Course)

    @property
    def headline(self) -> str:
        metric, limit = self.search.job.metric, self.search.limit
        of = f" of {limit}" if limit else ""
        best = f", best {metric} {self.best.score:.4f}" if self.best else ""
        return f"tune: trial {self.number}{of}{best}"

    def __call__(self, course: Course, step: Step) -> None:
        self.course = course
        share = self.search.share(self.number - 1 + (step.share or 0.0))
        self.search.how.report(f"{self.headline}, now step {step.number}", share)
        if not step.whole:
            return
        if not math.isfinite(step.loss):
            raise FloatingPointError(f"the loss became {step.loss} at step {step.number}")
        score = course.history[-1].get("score")
        if score is None:
            return
        if not math.isfinite(score):
            raise FloatingPointError(f"the score became {score} at step {step.number}")
        self.trial.report(score, step.number)
        if not step.final and self.trial.should_prune():
            from optuna import TrialPruned

            raise TrialPruned


# ---------------------------------------------------------------------------------- the folder


def _save(search: Search, model: Ranker | Grader, number: int) -> None:
    """Make this the folder's model, marked by its trial."""
    marked = replace(model.model, notes={**model.model.notes, "trial": number})
    replace(model, model=marked).save(search.folder / MODEL)


def _model_of(search: Search, best: Trial) -> Ranker | Grader:
    """The model of the best trial; fitted again if a kill came between, or it was removed."""
    path = search.folder / MODEL
    model = load(path) if exists(path) else None
    if model is None or model.model.notes.get("trial") != best.number:
        _save(search, fit(**_fitting(search, search.settings(best))), best.number)
        model = load(path)
    return model


def _write(search: Search, trials: list[Trial]) -> None:
    """The trials as a table, and the best settings as TOML."""
    table, columns = io.StringIO(), [one.name for one in fields(Trial) if one.name != "settings"]
    writer = csv.DictWriter(table, [*columns, *search.space], lineterminator="\n")
    writer.writeheader()
    for trial in trials:
        row = {name: getattr(trial, name) for name in columns}
        writer.writerow({**row, **trial.settings})
    put(search.folder / TRIALS, table.getvalue())
    best = best_of(trials)
    if best is not None:
        put(search.folder / BEST, _to_toml(search, best, len(trials)))


def _to_toml(search: Search, best: Trial, n_trials: int) -> str:
    name, metric = search.job.name, search.job.metric
    again = f"--config {search.folder / BEST} --metric {metric} --seed {search.how.seed}"
    lines = [
        f"# {name}: {metric} {best.score:.6f} on validation, trial {best.number} of {n_trials}",
        f"# rankfold fit {name} DATA --out MODEL {again}",
    ]
    usual = search.job.method.config()
    for setting, value in search.settings(best).items():
        if value is not None or getattr(usual, setting) is not None:
            lines.append(f"{setting} = {json.dumps('none' if value is None else value)}")
    return "\n".join(lines) + "\n"
