"""The papers' theorems as measurements. To add one: a file, a line in ``DIAGNOSES``, a test."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, make_dataclass
from typing import Any

import torch

from rankfold import config
from rankfold.data.folder import check_content
from rankfold.data.prepare import as_data
from rankfold.distributed.collectives import SingleProcess
from rankfold.errors import UserError, find, memory_errors
from rankfold.methods.ordinal.cba import CbaConfig
from rankfold.notebook import shown
from rankfold.tasks.diagnose import ranks, surrogate, whiteness
from rankfold.tasks.diagnose.result import DiagnosisResult
from rankfold.tasks.diagnose.training import DiagnosedTraining
from rankfold.types import Progress, Run

_METHOD = "cba"  # the only method that can be diagnosed


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A measurement, selected by name."""

    summary: str
    config: type[Any]  # ``Settings`` of the diagnosis
    measure: Callable[[Any, Any, Progress], DiagnosisResult]  # settings, training or None
    trains: bool  # needs data
    memory_settings: str  # to reduce if memory is short


DIAGNOSES = {
    "ranks": Diagnosis(
        "true ranks against ranks estimated from the cache",
        ranks.RanksConfig,
        ranks.measure,
        trains=True,
        memory_settings="width, batch_size, cache or rows",
    ),
    "whiteness": Diagnosis(
        "whether changes of ranks are white noise",
        whiteness.WhitenessConfig,
        whiteness.measure,
        trains=True,
        memory_settings="width, batch_size, cache, rows or others",
    ),
    "surrogate": Diagnosis(
        "the surrogate risk against the exact one",
        surrogate.SurrogateConfig,
        surrogate.measure,
        trains=False,
        memory_settings="scores",
    ),
}


def diagnose(
    name: str,
    data: Any = None,
    options: Mapping[str, Any] | None = None,
    *,
    method: str = _METHOD,
    seed: int = 0,
    progress: Progress = shown,
) -> DiagnosisResult:
    """Run a diagnosis.

    Args:
        name: a key of ``DIAGNOSES``.
        data: prepared data of graded rows or its folder, for a diagnosis that trains.
        options: the diagnosis's own settings and, for one that trains, the method's.
        method: the method to train; ``cba``.
        seed: of the training and of the sample of rows.
        progress: called with a message and the share done.
    """
    diagnosis = find_diagnosis(name)
    if method != _METHOD:
        raise UserError(
            f"{name} is for the method {_METHOD}, got {method!r}", hint=f"use --method {_METHOD}"
        )
    if not 0 <= seed < 2**63:
        raise UserError(f"`seed` must be at least 0, got {seed}", hint="and below 2**63")
    others = dict(options or {})
    names = [one.name for one in fields(diagnosis.config)]
    own = {name: others.pop(name) for name in names if name in others}
    settings = config.build(diagnosis.config, own)
    hint = f"try a smaller {diagnosis.memory_settings}"
    with memory_errors(f"diagnose {name} with these settings", hint):
        if not diagnosis.trains:
            config.check_names(diagnosis.config, others)
            return _with_request(name, diagnosis.measure(settings, None, progress), {})
        training = _training(name, diagnosis, data, others, seed)
        result = diagnosis.measure(settings, training, progress)
    request = {"method": method, "seed": seed, "config": asdict(training.config)}
    return _with_request(name, result, {**request, "data": training.data.fingerprint})


def find_diagnosis(name: str) -> Diagnosis:
    return find(DIAGNOSES, name, "diagnosis")


def _training(
    name: str, diagnosis: Diagnosis, data: Any, options: dict[str, Any], seed: int
) -> DiagnosedTraining:
    """Check everything that can be checked before the work begins."""
    both = [one.name for kind in (diagnosis.config, CbaConfig) for one in fields(kind)]
    config.check_names(make_dataclass("Options", both), options)
    settings = config.build(CbaConfig, options)
    if data is None:
        raise UserError(
            f"{name} trains a model and needs data",
            hint=f"write rankfold diagnose {name} DATA, with a folder of graded rows",
        )
    read = as_data(data)
    if read.kind != "graded":
        raise UserError(
            f"{name} needs graded rows, but the data is {read.kind}",
            hint="prepare it with --format features",
        )
    check_content(read)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    run = Run(rng=torch.Generator().manual_seed(seed), device=device, comm=SingleProcess())
    return DiagnosedTraining(read, settings, run)


def _with_request(name: str, result: DiagnosisResult, request: dict[str, Any]) -> DiagnosisResult:
    """The result with the name and settings of the diagnosis in its details."""
    details = {"diagnosis": name, **request, "summary": result.summary, **result.details}
    return result._replace(details=details)
