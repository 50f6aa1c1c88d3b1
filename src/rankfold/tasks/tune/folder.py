"""The folder of a search: its Optuna study, its trials, the best settings and their model."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rankfold import storage
from rankfold.errors import DiskError, UserError, require
from rankfold.models.grader import Grader
from rankfold.models.ranker import Ranker
from rankfold.tasks.tune.plan import State, Trial, TunePlan, best_of
from rankfold.training.checkpoint import check_same

if TYPE_CHECKING:
    import optuna

_NAME = "rankfold"  # of the study
_STUDY, TRIALS, _BEST, MODEL = "study.db", "trials.csv", "best.toml", "model"
_UNPRUNED_TRIALS = 4  # the first trials are never pruned
_UNPRUNED_STEPS = 3  # the first steps of a trial are never pruned


def make_folder(folder: Path) -> Path:
    """Make the folder of a search if it is missing; a UserError if it holds other files."""
    check_folder(folder)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise _not_writable(folder, error) from None
    return folder


def check_folder(folder: Path) -> None:
    """A UserError if a search cannot be in the folder: it holds other files."""
    storage.check_destination(folder)
    try:
        foreign = folder.exists() and not (folder / _STUDY).exists() and any(folder.iterdir())
    except OSError as error:
        raise _not_writable(folder, error) from None
    if foreign:
        raise UserError(
            f"{folder} holds files that are not of a search", hint="choose another --out"
        )


def _not_writable(folder: Path, error: OSError) -> UserError:
    return UserError(f"cannot write into {folder}: {error.strerror}", hint="choose another --out")


def read_trials(plan: TunePlan) -> list[Trial]:
    """The finished trials of the folder, which stays as it is."""
    if not (plan.folder / _STUDY).exists():
        return []
    with _database(plan) as database:
        study = import_optuna().load_study(study_name=_NAME, storage=database)
        _check_same_search(plan, study)
        return trials_of(study)


@contextmanager
def open_study(plan: TunePlan) -> Iterator[optuna.Study]:
    """Open or create the study of the folder; unfinished trials are marked as failed."""
    optuna = import_optuna()
    with _database(plan) as database:
        first_step = _UNPRUNED_STEPS + 1  # steps count from 1
        pruner = optuna.pruners.MedianPruner(_UNPRUNED_TRIALS, first_step)
        study = optuna.create_study(
            storage=database,
            study_name=_NAME,
            direction="maximize",
            pruner=pruner,
            load_if_exists=True,
        )
        if "search" not in study.user_attrs:
            study.set_user_attr("search", plan.identity())
        _check_same_search(plan, study)
        for unfinished in study.get_trials(states=(optuna.trial.TrialState.RUNNING,)):
            study.tell(unfinished.number, state=optuna.trial.TrialState.FAIL)
        yield study


@contextmanager
def _database(plan: TunePlan) -> Iterator[optuna.storages.RDBStorage]:
    optuna = import_optuna()
    path = quote(str((plan.folder / _STUDY).absolute()))
    try:
        database = optuna.storages.RDBStorage(f"sqlite:///{path}")
    except Exception as error:
        raise _not_usable(plan, error) from error
    try:
        yield database
    except optuna.exceptions.StorageInternalError as error:
        raise _not_usable(plan, error) from error
    finally:
        database.remove_session()
        database.engine.dispose()


def _not_usable(plan: TunePlan, error: Exception) -> DiskError:
    first = str(error.__cause__ or error).splitlines()[0]
    return DiskError(
        f"cannot use {plan.folder / _STUDY}: {first}",
        hint="free some space and run it again, or remove the folder or choose another --out",
    )


def import_optuna() -> Any:
    """Optuna, or a UserError that says how to install it."""
    optuna = require("optuna", "tuning", "tune")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _check_same_search(plan: TunePlan, study: optuna.Study) -> None:
    """A UserError if the study is of another search."""
    saved = study.user_attrs.get("search", plan.identity())
    hint = "choose another --out, or give the values of that search"
    check_same(f"{plan.folder} is a search", saved, plan.identity(), hint)


def trials_of(study: optuna.Study) -> list[Trial]:
    """The finished trials; an unfinished one is run again under the same number."""
    from optuna.trial import TrialState

    states: dict[TrialState, State] = {
        TrialState.COMPLETE: "complete",
        TrialState.PRUNED: "pruned",
        TrialState.FAIL: "failed",
    }
    trials: list[Trial] = []
    for one in study.get_trials(deepcopy=False, states=tuple(states)):
        state, noted = states[one.state], one.user_attrs.get("noted", {"message": None})
        if state == "failed" and noted["message"] is None:
            continue
        score = max(one.intermediate_values.values()) if state == "pruned" else one.value
        trials.append(Trial(len(trials) + 1, state, score, one.params, **noted))
    return trials


def save_model(plan: TunePlan, model: Ranker | Grader, number: int) -> None:
    """Save the model of a trial as the model of the plan."""
    marked = replace(model.model, notes={**model.model.notes, "trial": number})
    replace(model, model=marked).save(plan.folder / MODEL)


def write_trials(plan: TunePlan, trials: list[Trial]) -> None:
    """Write the trials as a table and the best settings as TOML."""
    table, columns = io.StringIO(), [one.name for one in fields(Trial) if one.name != "settings"]
    writer = csv.DictWriter(table, [*columns, *plan.space], lineterminator="\n")
    writer.writeheader()
    for trial in trials:
        writer.writerow({name: getattr(trial, name) for name in columns} | dict(trial.settings))
    storage.write_text(plan.folder / TRIALS, table.getvalue())
    best = best_of(trials)
    if best is not None:
        storage.write_text(plan.folder / _BEST, _to_toml(plan, best, len(trials)))


def _to_toml(plan: TunePlan, best: Trial, n_trials: int) -> str:
    name, metric = plan.fit.name, plan.fit.metric
    again = f"--config {plan.folder / _BEST} --metric {metric} --seed {plan.options.seed}"
    lines = [
        f"# {name}: {metric} {best.score:.6f} on validation, trial {best.number} of {n_trials}",
        f"# rankfold fit {name} DATA --out MODEL {again}",
    ]
    defaults = plan.fit.method.config()
    for setting, value in plan.settings(best).items():
        if value is not None or getattr(defaults, setting) is not None:
            lines.append(f"{setting} = {json.dumps('none' if value is None else value)}")
    return "\n".join(lines) + "\n"
