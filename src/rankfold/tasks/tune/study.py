"""The study of a search: trials as Optuna keeps them, in a file of the folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rankfold.errors import UserError
from rankfold.tasks.tune.plan import Search, State, Trial

if TYPE_CHECKING:
    import optuna

STUDY = "study.db"
UNPRUNED = 4  # trials that run to their end before others may be cut short
UNPRUNED_STEPS = 3  # of every trial


def make_folder(folder: Path) -> Path:
    """The folder of a search, made if it is not there; one of something else is a UserError."""
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
    return folder


@contextmanager
def opened(search: Search) -> Iterator[optuna.Study]:
    """The study of the folder, made if it is not there; trials that were cut off have failed."""
    optuna = library()
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


def library() -> Any:
    """Optuna, or a UserError that tells how to get it."""
    try:
        import optuna
    except ImportError:
        raise UserError(
            "tuning needs optuna, which is not installed", hint="pip install 'rankfold[tune]'"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


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


def trials_of(study: optuna.Study) -> list[Trial]:
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
