"""One trial of a search: what it is given, its fit, and when that is cut short."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from rankfold.errors import UserError
from rankfold.models.grader import Grader
from rankfold.models.ranker import Ranker
from rankfold.tasks.evaluate import evaluate
from rankfold.tasks.fit import fit
from rankfold.tasks.tune.plan import Search, Trial, best_of, seed_of
from rankfold.tasks.tune.records import save
from rankfold.training.history import History
from rankfold.types import Choices, Range, Step

if TYPE_CHECKING:
    import optuna

AT_RANDOM = 8  # trials before what was learnt from them guides the next
FAILURES = (UserError, ArithmeticError, LinAlgError)  # of one trial: the search goes on


def try_next(search: Search, study: optuna.Study, before: list[Trial]) -> None:
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
        options = search.fitting({**search.how.fixed, **settings})
        model = fit(**options, seconds=_at_least_0(search.left()), report=watch)
        score = watch.history.score if watch.history.score is not None else _score(search, model)
        if watch.best is None or score > (watch.best.score or 0.0):
            save(search, model, number)
    except TrialPruned:
        state = TrialState.PRUNED
    except FAILURES as error:
        state, message = TrialState.FAIL, str(error)
    steps, seconds = len(watch.history.entries), monotonic() - began
    trial.set_user_attr("noted", {"steps": steps, "seconds": seconds, "message": message})
    study.tell(trial, score, state=state)


def _ask(search: Search, study: optuna.Study, number: int) -> optuna.Trial:
    """A trial whose settings follow from its number and the results before it."""
    from optuna.samplers import TPESampler
    from optuna.trial import TrialState

    study.sampler = TPESampler(
        n_startup_trials=AT_RANDOM, seed=seed_of(search.how.seed, number), constant_liar=False
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


def _at_least_0(seconds: float | None) -> float | None:
    return None if seconds is None else max(0.0, seconds)


def _score(search: Search, model: Ranker | Grader) -> float:
    """The validation score of a model whose steps had none: its method selects itself."""
    found = evaluate(model, search.job.data, split="validation", metrics=[search.job.metric])
    return float(next(iter(found.metrics.values())))


@dataclass(slots=True)
class _Watch:
    """The report of a trial's fit: tells the pruner and the person, keeps the history."""

    search: Search
    trial: optuna.Trial
    number: int
    best: Trial | None
    history: History = field(default_factory=History)

    @property
    def headline(self) -> str:
        metric, limit = self.search.job.metric, self.search.limit
        of = f" of {limit}" if limit else ""
        best = f", best {metric} {self.best.score:.4f}" if self.best else ""
        return f"tune: trial {self.number}{of}{best}"

    def __call__(self, history: History, step: Step) -> None:
        self.history = history
        share = self.search.share(self.number - 1 + (step.share or 0.0))
        self.search.how.report(f"{self.headline}, now step {step.number}", share)
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
