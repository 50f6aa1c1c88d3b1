"""Search for better settings of a method: fit it many times and keep the best on validation.

A folder holds the search: ``study.db`` (Optuna's, SQLite), ``trials.csv``, ``best.toml`` (settings
for ``rankfold fit --config``) and ``model`` (of the best trial). The settings of a trial depend
only on the seed, its number and the results before it. So a killed search continues as if it had
not been killed, unless its budget is a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

from rankfold import config, storage
from rankfold.data.prepare import as_data
from rankfold.errors import UserError
from rankfold.interrupts import deferred_interrupt
from rankfold.models.grader import Grader
from rankfold.models.ranker import Ranker
from rankfold.tasks.options import TuneOptions
from rankfold.tasks.tune import records
from rankfold.tasks.tune.plan import Trial, TunePlan, best_of, make_plan
from rankfold.tasks.tune.study import import_optuna, make_folder, open_study, trials_of
from rankfold.tasks.tune.trial import load_best, run_trial

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
        options: the fields of ``TuneOptions``.
    """
    checked = config.build(TuneOptions, {"out": out, **options})
    import_optuna()
    plan = make_plan(method, as_data(data), checked)
    with storage.locked(make_folder(plan.folder)):
        trials = _run_trials(plan)
        best = best_of(trials)
        if best is None:
            table = plan.folder / records.TRIALS
            hint = f"{len(trials)} of {len(trials)} trials failed; see {table}"
            raise UserError(trials[0].message or "no trial was finished", hint=hint)
        records.write(plan, trials)
        assert best.score is not None
        model = load_best(plan, best)
    return TuneResult(plan.settings(best), best.score, plan.fit.metric, trials, model)


def _run_trials(plan: TunePlan) -> list[Trial]:
    """All trials: those of earlier calls, then the missing ones."""
    with open_study(plan) as study, deferred_interrupt() as interrupted:
        trials = trials_of(study)
        plan = replace(plan, started=monotonic() - sum(trial.seconds for trial in trials))
        while plan.has_next(len(trials)) and not _always_fails(trials):
            run_trial(plan, study, trials)
            trials = trials_of(study)
            records.write(plan, trials)
            if interrupted():
                raise KeyboardInterrupt
    return trials


def _always_fails(trials: Sequence[Trial]) -> bool:
    """True if enough trials were run, and all failed with the same message."""
    messages = {trial.message for trial in trials if trial.state == "failed"}
    all_failed = all(trial.state == "failed" for trial in trials)
    return len(trials) >= _MAX_SAME_FAILURES and all_failed and len(messages) == 1
