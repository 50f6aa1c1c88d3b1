"""Log a fit for other tools: CSV, TensorBoard's event files, or a folder ``mlflow ui`` reads.

    with tracked("mlflow:runs", "rg2") as report:
        rf.fit("rg2", data, report=report)

MLflow's folder is written here, without MLflow: plain files in the layout of its FileStore,
``DIR/0/RUN/{meta.yaml, params/NAME, metrics/NAME, tags/NAME}``. TensorBoard's files need the extra
``tracking``.
"""

import csv
import getpass
import json
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from rankfold import storage
from rankfold.errors import UserError
from rankfold.training.early_stopping import History, Report
from rankfold.types import Step

_EXPERIMENT = "0"  # MLflow's own default
_RUNNING, _FINISHED, _FAILED, _KILLED = 1, 3, 4, 5  # MLflow's RunStatus
_MAX_PARAMETER_LENGTH = 6000  # in MLflow, in characters
_INVALID = re.compile(r"[^\w.\- /]")  # in a name of MLflow


@contextmanager
def tracked(
    where: str | None,
    name: str,
    settings: Mapping[str, Any] | None = None,
    *,
    metric: str = "score",
) -> Iterator[Report]:
    """A ``Report`` for ``fit`` that logs the loss, seconds and score of each step as a new run.

    Args:
        where: ``csv:DIR``, ``tensorboard:DIR`` or ``mlflow:DIR``; None: nothing is logged.
        name: of the run.
        settings: the given settings; those of the model are logged with its first step.
        metric: the name of the validation score.
    """
    if where is None:
        yield lambda _history, _step: None
        return
    kind, folder = parse_place(where)
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot track to {folder}: {error.strerror}", hint="choose another folder"
        ) from None
    with _TRACKERS[kind](Path(folder), name, dict(settings or {}), metric) as report:
        yield report


def parse_place(where: str) -> tuple[str, str]:
    """Tool and folder of ``csv:DIR``; a UserError for anything else."""
    kind, _, folder = where.partition(":")
    if kind not in _TRACKERS or not folder:
        raise UserError(
            f"cannot track to {where!r}",
            hint=f"write {' or '.join(f'{one}:DIR' for one in _TRACKERS)}",
        )
    return kind, folder


def combine(*reports: Report) -> Report:
    """A ``Report`` that calls several."""

    def report(history: History, step: Step) -> None:
        for one in reports:
            one(history, step)

    return report


@contextmanager
def _csv(folder: Path, name: str, settings: dict[str, Any], metric: str) -> Iterator[Report]:
    """``RUN.csv`` has a row per value, ``RUN.settings.csv`` one per setting."""
    run = _run_name(name)

    def append(file: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        path = folder / file
        with path.open("a", encoding="utf-8", newline="") as lines:
            writer = csv.writer(lines)
            writer.writerows([*([] if lines.tell() else [columns]), *rows])

    def log_settings(values: Mapping[str, Any]) -> None:
        append(f"{run}.settings.csv", ("setting", "value"), [*values.items()])

    def log_values(values: Mapping[str, float], step: int) -> None:
        rows = [(*key.split("/", 1), step, value) for key, value in values.items()]
        append(f"{run}.csv", ("phase", "name", "step", "value"), rows)

    yield _reporter(settings, metric, log_settings, log_values)


def _run_name(name: str) -> str:
    return f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{uuid4().hex[:4]}"


@contextmanager
def _tensorboard(
    folder: Path, name: str, settings: dict[str, Any], metric: str
) -> Iterator[Report]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError(
            "logging to TensorBoard needs the package tensorboard, which is not installed",
            hint="pip install 'rankfold[tracking]', or use mlflow:DIR, which needs no package",
        ) from None
    with SummaryWriter(folder / _run_name(name)) as to:

        def log_settings(values: Mapping[str, Any]) -> None:
            for key, value in values.items():
                to.add_text(f"settings/{key}", str(value))

        def log_values(values: Mapping[str, float], step: int) -> None:
            for key, value in values.items():
                to.add_scalar(key, value, step)
            to.flush()

        yield _reporter(settings, metric, log_settings, log_values)


@contextmanager
def _mlflow(folder: Path, name: str, settings: dict[str, Any], metric: str) -> Iterator[Report]:
    """A run of MLflow's default experiment, which is created if it is missing."""
    home, run = folder.absolute() / _EXPERIMENT, uuid4().hex
    if not (home / "meta.yaml").exists():
        about = {"name": "Default", "artifact_location": home.as_uri()}
        about |= {"experiment_id": _EXPERIMENT, "lifecycle_stage": "active"}
        _write_meta(home, about | {"creation_time": _now(), "last_update_time": _now()})
    about, place = _run(home, run, name), home / run
    for part in ("params", "metrics", "tags", "artifacts"):
        (place / part).mkdir(parents=True)
    _write_meta(place, about)
    tags = {"runName": name, "source.name": "rankfold fit", "source.type": "LOCAL"}
    for key, value in tags.items():
        (place / "tags" / f"mlflow.{key}").write_text(value, encoding="utf-8")

    def log_settings(values: Mapping[str, Any]) -> None:
        for key, value in values.items():
            text = str(value)[:_MAX_PARAMETER_LENGTH]
            (place / "params" / _clean(key)).write_text(text, encoding="utf-8")

    def log_values(values: Mapping[str, float], step: int) -> None:
        for key, value in values.items():
            file = place / "metrics" / _clean(key)
            file.parent.mkdir(exist_ok=True)
            with file.open("a", encoding="utf-8") as lines:
                lines.write(f"{_now()} {value!r} {step}\n")

    status = _FAILED
    try:
        yield _reporter(settings, metric, log_settings, log_values)
        status = _FINISHED
    except KeyboardInterrupt:
        status = _KILLED
        raise
    finally:
        _write_meta(place, about | {"status": status, "end_time": _now()})


def _run(home: Path, run: str, name: str) -> dict[str, Any]:
    """The metadata of a run in MLflow."""
    user = "unknown"
    with suppress(OSError, KeyError):  # a container may have no user name
        user = getpass.getuser()
    return {
        "artifact_uri": f"{home.as_uri()}/{run}/artifacts",
        "deleted_time": None,
        "end_time": None,
        "entry_point_name": "",
        "experiment_id": _EXPERIMENT,
        "lifecycle_stage": "active",
        "run_id": run,
        "run_name": name,
        "run_uuid": run,
        "source_name": "",
        "source_type": 4,  # local
        "source_version": "",
        "start_time": _now(),
        "status": _RUNNING,
        "tags": [],
        "user_id": user,
    }


def _write_meta(folder: Path, values: Mapping[str, Any]) -> None:
    """Write a YAML file atomically; a JSON value is a YAML value."""
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in values.items()]
    storage.write_text(folder / "meta.yaml", "".join(lines))


def _clean(name: str) -> str:
    """A valid name in MLflow: ``ndcg@10`` becomes ``ndcg-10``."""
    return _INVALID.sub("-", name)


def _now() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 10**6


def _reporter(
    settings: dict[str, Any],
    metric: str,
    log_settings: Callable[[Mapping[str, Any]], None],
    log_values: Callable[[Mapping[str, float], int], None],
) -> Report:
    """Log the given settings now, and those of the model with its first step."""
    log_settings(settings)
    logged = dict(settings)

    def report(history: History, step: Step) -> None:
        if not step.whole:
            return
        if step.model is not None:
            new = {k: v for k, v in step.model.config.items() if logged.get(k, math.nan) != v}
            log_settings(new)
            logged.update(new)
        entry, names = history.entries[-1], {"loss": "loss", "seconds": "seconds", "score": metric}
        values = {
            f"{history.phase}/{name}": entry[key] for key, name in names.items() if key in entry
        }
        log_values(values, step.number)

    return report


_TRACKERS: dict[str, Callable[[Path, str, dict[str, Any], str], AbstractContextManager[Report]]] = {
    "csv": _csv,
    "tensorboard": _tensorboard,
    "mlflow": _mlflow,
}
