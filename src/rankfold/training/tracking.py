"""Follow a fit in other tools: TensorBoard's event files, or a folder that ``mlflow ui`` reads.

    with tracked("mlflow:runs", "rg2") as report:
        rf.fit("rg2", data, report=report)

MLflow's folder is written here, without MLflow: plain files in the layout of its FileStore,
``DIR/0/RUN/{meta.yaml, params/NAME, metrics/NAME, tags/NAME}``. TensorBoard's files need the extra
``tracking``.
"""

from __future__ import annotations

import getpass
import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from rankfold.errors import UserError
from rankfold.training.history import History, Report, no_report
from rankfold.types import Step

EXPERIMENT = "0"  # MLflow's own default
RUNNING, FINISHED, FAILED, KILLED = 1, 3, 4, 5  # MLflow's RunStatus
LONGEST = 6000  # characters of a parameter that MLflow reads
_FOREIGN = re.compile(r"[^\w.\- /]")  # what a name must not hold


@contextmanager
def tracked(
    where: str | None,
    name: str,
    settings: Mapping[str, Any] | None = None,
    *,
    metric: str = "score",
) -> Iterator[Report]:
    """A ``Report`` for ``fit`` that notes each step's loss, seconds and score as a new run.

    Args:
        where: ``tensorboard:DIR`` or ``mlflow:DIR``; None: nothing is noted.
        name: of the run.
        settings: what was asked for; the settings of the model are noted too, when it is there.
        metric: what the validation score is called.
    """
    if where is None:
        yield no_report
        return
    kind, _, folder = where.partition(":")
    if kind not in TRACKERS or not folder:
        raise UserError(
            f"cannot track to {where!r}", hint="say tensorboard:DIR or mlflow:DIR, a folder"
        )
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot track to {folder}: {error.strerror}", hint="name another folder"
        ) from None
    with TRACKERS[kind](Path(folder), name, dict(settings or {}), metric) as report:
        yield report


def together(*reports: Report) -> Report:
    """A ``Report`` that tells several."""

    def report(history: History, step: Step) -> None:
        for one in reports:
            one(history, step)

    return report


def _values(history: History, metric: str) -> dict[str, float]:
    """What the history's last entry measured, by the phase and what it is."""
    entry = history.entries[-1]
    names = {"loss": "loss", "seconds": "seconds", "score": metric}
    return {f"{history.phase}/{names[key]}": entry[key] for key in names if key in entry}


# ---------------------------------------------------------------------------------- tensorboard


@contextmanager
def _tensorboard(
    folder: Path, name: str, settings: dict[str, Any], metric: str
) -> Iterator[Report]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError(
            "TensorBoard's files need the package tensorboard, which is not installed",
            hint="pip install 'rankfold[tracking]', or use mlflow:DIR, which needs nothing",
        ) from None
    with SummaryWriter(folder / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{uuid4().hex[:4]}") as to:

        def note(values: Mapping[str, Any]) -> None:
            for key, value in values.items():
                to.add_text(f"settings/{key}", str(value))

        def measure(values: Mapping[str, float], step: int) -> None:
            for key, value in values.items():
                to.add_scalar(key, value, step)
            to.flush()

        yield _reporter(settings, metric, note, measure)


# ---------------------------------------------------------------------------------- mlflow


@contextmanager
def _mlflow(folder: Path, name: str, settings: dict[str, Any], metric: str) -> Iterator[Report]:
    """A run of MLflow's default experiment, which is made if it is not there."""
    home, run = folder.absolute() / EXPERIMENT, uuid4().hex
    if not (home / "meta.yaml").exists():
        _write_meta(home, _experiment(home))
    about, place = _run(home, run, name), home / run
    for part in ("params", "metrics", "tags", "artifacts"):
        (place / part).mkdir(parents=True)
    _write_meta(place, about)
    tags = {"runName": name, "source.name": "rankfold fit", "source.type": "LOCAL"}
    for key, value in tags.items():
        (place / "tags" / f"mlflow.{key}").write_text(value, encoding="utf-8")

    def note(values: Mapping[str, Any]) -> None:
        for key, value in values.items():
            text = str(value)[:LONGEST]
            (place / "params" / _clean(key)).write_text(text, encoding="utf-8")

    def measure(values: Mapping[str, float], step: int) -> None:
        for key, value in values.items():
            file = place / "metrics" / _clean(key)
            file.parent.mkdir(exist_ok=True)
            with file.open("a", encoding="utf-8") as lines:
                lines.write(f"{_now()} {value!r} {step}\n")

    status = FAILED
    try:
        yield _reporter(settings, metric, note, measure)
        status = FINISHED
    except KeyboardInterrupt:
        status = KILLED
        raise
    finally:
        _write_meta(place, about | {"status": status, "end_time": _now()})


def _experiment(home: Path) -> dict[str, Any]:
    return {
        "artifact_location": home.as_uri(),
        "creation_time": _now(),
        "experiment_id": EXPERIMENT,
        "last_update_time": _now(),
        "lifecycle_stage": "active",
        "name": "Default",
    }


def _run(home: Path, run: str, name: str) -> dict[str, Any]:
    """All that MLflow keeps of a run besides its values."""
    user = "unknown"
    with suppress(OSError, KeyError):  # a container may have no name for who runs it
        user = getpass.getuser()
    return {
        "artifact_uri": f"{home.as_uri()}/{run}/artifacts",
        "deleted_time": None,
        "end_time": None,
        "entry_point_name": "",
        "experiment_id": EXPERIMENT,
        "lifecycle_stage": "active",
        "run_id": run,
        "run_name": name,
        "run_uuid": run,
        "source_name": "",
        "source_type": 4,  # local
        "source_version": "",
        "start_time": _now(),
        "status": RUNNING,
        "tags": [],
        "user_id": user,
    }


def _write_meta(folder: Path, values: Mapping[str, Any]) -> None:
    """A YAML file, at once; a JSON value is a YAML value."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in values.items()]
    partial = folder / ".writing-meta.yaml"
    partial.write_text("".join(lines), encoding="utf-8")
    partial.replace(folder / "meta.yaml")


def _clean(name: str) -> str:
    """A name that MLflow reads: ``ndcg@10`` becomes ``ndcg-10``."""
    return _FOREIGN.sub("-", name)


def _now() -> int:
    """In milliseconds."""
    return time.time_ns() // 10**6


# ---------------------------------------------------------------------------------- both


def _reporter(
    settings: dict[str, Any],
    metric: str,
    note: Callable[[Mapping[str, Any]], None],
    measure: Callable[[Mapping[str, float], int], None],
) -> Report:
    """Notes what was asked for now, and the model's own settings with its first step."""
    note(settings)
    noted = dict(settings)

    def report(history: History, step: Step) -> None:
        if not step.whole:
            return
        if step.model is not None:
            new = {k: v for k, v in step.model.config.items() if noted.get(k, math.nan) != v}
            note(new)
            noted.update(new)
        measure(_values(history, metric), step.number)

    return report


TRACKERS: dict[str, Callable[[Path, str, dict[str, Any], str], AbstractContextManager[Report]]] = {
    "tensorboard": _tensorboard,
    "mlflow": _mlflow,
}
