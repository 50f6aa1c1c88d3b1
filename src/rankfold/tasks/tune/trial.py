"""One trial of a search: its settings, its fit, and when it is pruned."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from rankfold import storage
from rankfold.errors import UserError
from rankfold.models.grader import Grader
from rankfold.models.load import load
from rankfold.models.ranker import Ranker
from rankfold.tasks.evaluate import evaluate
from rankfold.tasks.fit import fit
from rankfold.tasks.tune.plan import Trial, TunePlan, best_of, seed_of
from rankfold.tasks.tune.records import MODEL, save_model
from rankfold.training.history import History
from rankfold.types import Choices, Range, Step

if TYPE_CHECKING:
    import optuna

RANDOM_TRIALS = 8  # drawn at random before earlier results guide the next
_TRIAL_ERRORS = (UserError, ArithmeticError, LinAlgError)  # fail one trial, not the search


def run_trial(plan: TunePlan, study: optuna.Study, before: list[Trial]) -> None:
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
            save_model(plan, model, number)
    except TrialPruned:
        state = TrialState.PRUNED
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


def load_best(plan: TunePlan, best: Trial) -> Ranker | Grader:
    """The model of the best trial; fitted again if a kill or a removal left another or none."""
    path = plan.folder / MODEL
    model = load(path) if (path / storage.MANIFEST).exists() else None
    if model is None or model.model.notes.get("trial") != best.number:
        save_model(plan, fit(**plan.fit_arguments(plan.settings(best))), best.number)
        model = load(path)
    return model
