"""Search for better settings of a method: fit it many times and keep the best on validation.

A folder holds the search: ``study.db`` (Optuna's, SQLite), ``trials.csv``, ``best.toml`` (settings
for ``rankfold fit --config``) and ``model`` (of the best trial). The settings of a trial depend
only on the seed, its number and the results before it. So a killed search continues as if it had
not been killed, unless its budget is a time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from rankfold import config, storage
from rankfold.data.prepare import as_data
from rankfold.errors import DiskError, UserError
from rankfold.interrupts import deferred_interrupt
from rankfold.models.grader import Grader
from rankfold.models.load import load
from rankfold.models.ranker import Ranker
from rankfold.tasks.evaluate import evaluate
from rankfold.tasks.fit import fit
from rankfold.tasks.options import TuneOptions
from rankfold.tasks.tune import folder
from rankfold.tasks.tune.plan import Trial, TunePlan, best_of, make_plan, seed_of
from rankfold.training.early_stopping import History
from rankfold.types import Choices, Range, Step

if TYPE_CHECKING:
    import optuna

RANDOM_TRIALS = 8  # drawn at random before earlier results guide the next
_TRIAL_ERRORS = (UserError, ArithmeticError, LinAlgError)  # fail one trial, not the search
_MAX_SAME_FAILURES = 10  # the search stops if its first trials all fail with one message


@dataclass(frozen=True, slots=True)
class TuneResult:
    """The trials of a search, and the model of the best one."""

    settings: Mapping[str, Any]  # of the best trial, with the fixed ones
    score: float
    metric: str
    trials: list[Trial]
    model: Ranker | Grader

    @property
    def best(self) -> Trial:
        best = best_of(self.trials)
        assert best is not None
        return best


@config.explicit(TuneOptions)
def tune(method: str, data: Any, *, out: str | Path, **options: Any) -> TuneResult:
    """Search for the settings of a method that score best on validation.

    The test split is not read. The first trial has the method's defaults, if they lie in the
    space. A space of choices only is a grid: each point is tried once, in an order drawn by the
    seed. A self-tuning method selects its settings in each trial; with nothing else to search it
    is fitted once. A failed trial is kept with its message. The search raises an error if all
    trials fail, and stops early if the first ten fail with the same message.

    Args:
        method: a key of ``METHODS``.
        data: prepared data with a validation split, or its folder.
        out: the folder of the search; an existing search is resumed if it is the same.
        options: see below; also ``fixed``, settings that are not searched, by name
            (``help(rankfold.fit)`` lists them).
    """
    checked = config.build(TuneOptions, {"out": out, **options})
    folder.import_optuna()
    plan = make_plan(method, as_data(data), checked)
    with storage.locked(folder.make_folder(plan.folder)):
        trials = _run_trials(plan)
        best = best_of(trials)
        if best is None:
            table = plan.folder / folder.TRIALS
            hint = f"{len(trials)} of {len(trials)} trials failed; see {table}"
            raise UserError(trials[0].message or "no trial was finished", hint=hint)
        folder.write_trials(plan, trials)
        assert best.score is not None
        model = _load_best(plan, best)
    return TuneResult(plan.settings(best), best.score, plan.fit.metric, trials, model)


def _run_trials(plan: TunePlan) -> list[Trial]:
    """All trials: those of earlier calls, then the missing ones."""
    with folder.open_study(plan) as study, deferred_interrupt() as interrupted:
        trials = folder.trials_of(study)
        plan = replace(plan, started=monotonic() - sum(trial.seconds for trial in trials))
        while plan.has_next(len(trials)):
            why = {trial.message if trial.state == "failed" else None for trial in trials}
            if len(trials) >= _MAX_SAME_FAILURES and len(why) == 1 and None not in why:
                break  # all failed with the same message
            _run_trial(plan, study, trials)
            trials = folder.trials_of(study)
            folder.write_trials(plan, trials)
            if interrupted():
                raise KeyboardInterrupt
    return trials


def _load_best(plan: TunePlan, best: Trial) -> Ranker | Grader:
    """The model of the best trial; fitted again if a kill or a removal left another or none."""
    path = plan.folder / folder.MODEL
    model = load(path) if (path / storage.MANIFEST).exists() else None
    if model is None or model.model.notes.get("trial") != best.number:
        folder.save_model(plan, fit(**plan.fit_arguments(plan.settings(best))), best.number)
        model = load(path)
    return model


# ---------------------------------------------------------------------------------- one trial


def _run_trial(plan: TunePlan, study: optuna.Study, before: list[Trial]) -> None:
    """Run the next trial and keep its model if it is the best."""
    from optuna import TrialPruned
    from optuna.trial import TrialState

    number, started = len(before) + 1, monotonic()
    trial = _next_trial(plan, study, number)
    settings = {name: _suggest(trial, name, where) for name, where in plan.space.items()}
    report = _TrialReport(plan, trial, number, best_of(before))
    plan.options.report(report.headline, plan.share(len(before)))
    score, state, message = None, TrialState.COMPLETE, None
    try:
        arguments = plan.fit_arguments({**plan.options.fixed, **settings})
        left = plan.seconds_left()
        limit = None if left is None else max(0.0, left)
        model = fit(**arguments, seconds=limit, report=report)
        score = report.history.score if report.history.score is not None else _score(plan, model)
        if report.best is None or score > (report.best.score or 0.0):
            folder.save_model(plan, model, number)
    except TrialPruned:
        state = TrialState.PRUNED
    except DiskError:
        raise  # says nothing about the settings: the trial is run again
    except _TRIAL_ERRORS as error:
        state, message = TrialState.FAIL, str(error)
    steps, seconds = len(report.history.entries), monotonic() - started
    trial.set_user_attr("noted", {"steps": steps, "seconds": seconds, "message": message})
    study.tell(trial, score, state=state)


def _next_trial(plan: TunePlan, study: optuna.Study, number: int) -> optuna.Trial:
    """A trial whose settings depend only on its number and the results before it."""
    from optuna.samplers import TPESampler
    from optuna.trial import TrialState

    study.sampler = TPESampler(
        n_startup_trials=RANDOM_TRIALS, seed=seed_of(plan.options.seed, number), constant_liar=False
    )
    planned = number <= len(plan.points)
    if planned and plan.space and not study.get_trials(states=(TrialState.WAITING,)):
        study.enqueue_trial(plan.points[number - 1])
    return study.ask()


def _suggest(trial: optuna.Trial, name: str, where: Range | Choices) -> Any:
    if isinstance(where, Choices):
        return trial.suggest_categorical(name, where.values)
    if where.whole:
        return trial.suggest_int(name, int(where.low), int(where.high), log=where.log)
    return trial.suggest_float(name, where.low, where.high, log=where.log)


def _score(plan: TunePlan, model: Ranker | Grader) -> float:
    """The validation score of a self-tuning method, whose steps have none."""
    result = evaluate(model, plan.fit.data, split="validation", metrics=[plan.fit.metric])
    return float(next(iter(result.metrics.values())))


@dataclass(slots=True)
class _TrialReport:
    """The report of a trial's fit: passes scores to the pruner and progress to the caller."""

    plan: TunePlan
    trial: optuna.Trial
    number: int
    best: Trial | None
    history: History = field(default_factory=History)

    @property
    def headline(self) -> str:
        metric, limit = self.plan.fit.metric, self.plan.limit
        of = f" of {limit}" if limit else ""
        best = f", best {metric} {self.best.score:.4f}" if self.best else ""
        return f"tune: trial {self.number}{of}{best}"

    def __call__(self, history: History, step: Step) -> None:
        self.history = history
        share = self.plan.share(self.number - 1 + (step.share or 0.0))
        self.plan.options.report(f"{self.headline}, now step {step.number}", share)
        if not step.whole:
            return
        if not math.isfinite(step.loss):
            raise FloatingPointError(f"the loss became {step.loss} at step {step.number}")
        score = history.entries[-1].get("score")
        if score is None:
            return
        if not math.isfinite(score):
            raise FloatingPointError(f"the score became {score} at step {step.number}")
        self.trial.report(score, step.number)
        if not step.final and self.trial.should_prune():
            from optuna import TrialPruned

            raise TrialPruned
