"""Look for better settings of a method: fit it again and again, keep what validation likes best.

A folder holds the search: ``study.db`` (Optuna's, SQLite), ``trials.csv``, ``best.toml`` (settings
for ``rankfold fit --config``) and ``model`` (of the best trial). What a trial is given follows from
the seed, its number and the results before it. So a search that was killed goes on as if it had not
been, unless its budget is time.
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
from rankfold.models.grader import Grader
from rankfold.models.ranker import Ranker
from rankfold.tasks.fit import patient_interrupt
from rankfold.tasks.tune import records
from rankfold.tasks.tune.plan import Search, Trial, Tuning, best_of, make_plan
from rankfold.tasks.tune.study import library, make_folder, opened, trials_of
from rankfold.tasks.tune.trial import try_next

HOPELESS = 10  # trials that fail for one reason, and none that does not: it ends there


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
    search it is fitted once. A trial that fails is kept with its message; if all do it is an error,
    after ten of them at the latest where all say the same.

    Args:
        method: a key of ``METHODS``.
        data: prepared data with a validation split, or its folder.
        out: the folder of the search; one that is there goes on, if it is of the same search.
        options: the fields of ``Tuning``: trials, budget, metric, seed, space, fixed, device,
            report.
    """
    how = config.build(Tuning, {"out": out, **options})
    library()
    search = make_plan(method, as_data(data), how)
    with storage.locked(make_folder(search.folder)):
        trials = _searched(search)
        best = best_of(trials)
        if best is None:
            table = search.folder / records.TRIALS
            hint = f"{len(trials)} of {len(trials)} trials failed; {table} says why"
            raise UserError(trials[0].message or "no trial was finished", hint=hint)
        records.write(search, trials)
        assert best.score is not None
        model = records.model_of(search, best)
    return Tuned(search.settings(best), best.score, search.job.metric, trials, model)


def _searched(search: Search) -> list[Trial]:
    """All trials, after those that were still to be made."""
    with opened(search) as study, patient_interrupt() as interrupted:
        trials = trials_of(study)
        search = replace(search, began=monotonic() - sum(trial.seconds for trial in trials))
        while search.goes_on(len(trials)) and not is_hopeless(trials):
            try_next(search, study, trials)
            trials = trials_of(study)
            records.write(search, trials)
            if interrupted():
                raise KeyboardInterrupt
    return trials


def is_hopeless(trials: Sequence[Trial]) -> bool:
    """True where enough trials have failed, all of them for one reason."""
    messages = {trial.message for trial in trials if trial.state == "failed"}
    all_failed = all(trial.state == "failed" for trial in trials)
    return len(trials) >= HOPELESS and all_failed and len(messages) == 1
