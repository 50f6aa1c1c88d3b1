"""The papers' theorems as measurements. To add one: a file, a line in ``DIAGNOSES``, a test."""

from collections.abc import Mapping
from dataclasses import asdict, fields, make_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from rankfold import config
from rankfold.data.folder import check_content
from rankfold.data.prepare import as_data
from rankfold.distributed.collectives import SingleProcess
from rankfold.errors import UserError, find, memory_errors
from rankfold.methods import find_method
from rankfold.models.grader import Grader
from rankfold.models.load import load
from rankfold.models.ranker import Ranker
from rankfold.notebook import shown
from rankfold.tasks.diagnose import (
    batch_size,
    bias,
    bounds,
    conditions,
    consistency,
    convergence,
    generalisation,
    limits,
    negatives,
    proposition,
    ranks,
    surrogate,
    taylor,
    whiteness,
)
from rankfold.tasks.diagnose.result import Diagnosis, DiagnosisResult
from rankfold.tasks.diagnose.subject import DiagnosedData, DiagnosedModel
from rankfold.tasks.diagnose.training import DiagnosedTraining
from rankfold.tasks.fit import fit
from rankfold.types import Dataset, Progress, Run

DIAGNOSES: dict[str, Diagnosis] = {
    "taylor": taylor.DIAGNOSIS,
    "convergence": convergence.DIAGNOSIS,
    "consistency": consistency.DIAGNOSIS,
    "generalisation": generalisation.DIAGNOSIS,
    "negatives": negatives.DIAGNOSIS,
    "limits": limits.DIAGNOSIS,
    "bias": bias.DIAGNOSIS,
    "batch-size": batch_size.DIAGNOSIS,
    "bounds": bounds.DIAGNOSIS,
    "ranks": ranks.DIAGNOSIS,
    "whiteness": whiteness.DIAGNOSIS,
    "surrogate": surrogate.DIAGNOSIS,
    "conditions": conditions.DIAGNOSIS,
    "proposition": proposition.DIAGNOSIS,
}
DIAGNOSES |= config.plugins("rankfold.diagnoses")


def diagnose(
    name: str,
    data: Any = None,
    options: Mapping[str, Any] | None = None,
    *,
    model: Ranker | Grader | str | Path | None = None,
    method: str | None = None,
    seed: int = 0,
    progress: Progress = shown,
) -> DiagnosisResult:
    """Run a diagnosis.

    Args:
        name: a key of ``DIAGNOSES``.
        data: prepared data or its folder, for a diagnosis that needs some.
        options: the diagnosis's own settings and, for one that fits or trains, the method's.
        model: a fitted model or its folder, for a diagnosis of a model; None: one is fitted.
        method: the method to fit or train; None: the diagnosis's default.
        seed: of the fit and of samples.
        progress: called with a message and the share done.
    """
    plan = make_plan(name, data, options or {}, model=model, method=method, seed=seed)
    hint = "try fewer queries, rows or scores, or a smaller width or batch_size"
    with memory_errors(f"diagnose {name} with these settings", hint):
        subject, request = _subject(plan)
        result = plan.diagnosis.measure(plan.settings, subject, progress)
    request["settings"] = asdict(plan.settings)
    return _with_request(name, plan.diagnosis, result, request)


class DiagnosisPlan(NamedTuple):
    """A diagnosis whose arguments are checked and read."""

    diagnosis: Diagnosis
    settings: Any  # of the diagnosis
    data: Dataset | None
    model: Ranker | Grader | None  # None: there is none, or one is fitted
    method: str  # to fit or to train; empty: none
    options: dict[str, Any]  # settings of the method
    seed: int


def make_plan(
    name: str, data: Any, options: Mapping[str, Any], *, model: Any, method: str | None, seed: int
) -> DiagnosisPlan:
    """Check the arguments of ``diagnose`` and read what they name. Nothing is fitted."""
    diagnosis = find_diagnosis(name)
    if not 0 <= seed < 2**63:
        raise UserError(f"`seed` must be at least 0, got {seed}", hint="and below 2**63")
    _check_arguments(name, diagnosis, model, method)
    others = dict(options)
    names = [one.name for one in fields(diagnosis.config)]
    own = {name: others.pop(name) for name in names if name in others}
    settings = config.build(diagnosis.config, own)
    _check_options(diagnosis, others, method, fits=model is None)
    read = None if diagnosis.subject == "nothing" else _read(name, diagnosis, data)
    if diagnosis.subject in ("nothing", "data"):
        return DiagnosisPlan(diagnosis, settings, read, None, "", {}, seed)
    if method in (None, diagnosis.method):
        others = {**diagnosis.paper.quick, **others}
    method = method or diagnosis.method
    if model is None:
        config.build(find_method(method).config, others)
        return DiagnosisPlan(diagnosis, settings, read, None, method, others, seed)
    opened = model if isinstance(model, Ranker | Grader) else load(model)
    if isinstance(opened, Grader) != ((kind := diagnosis.paper.data) == "graded"):
        raise UserError(
            f"{name} is about {kind}, but the model was fitted by {opened.model.method}",
            hint=f"give a model of {diagnosis.method}",
        )
    return DiagnosisPlan(diagnosis, settings, read, opened, "", {}, seed)


def find_diagnosis(name: str) -> Diagnosis:
    return find(DIAGNOSES, name, "diagnosis")


def _check_arguments(name: str, diagnosis: Diagnosis, model: Any, method: str | None) -> None:
    """A UserError for a model or a method that the diagnosis does not take."""
    if model is not None and diagnosis.subject != "model":
        raise UserError(f"{name} does not take a model", hint="leave --model out")
    if method is None or method == diagnosis.method:
        return
    if diagnosis.subject == "training":
        raise UserError(
            f"{name} is for the method {diagnosis.method}, got {method!r}",
            hint=f"use --method {diagnosis.method}",
        )
    if diagnosis.subject != "model" or model is not None:
        raise UserError(f"{name} fits no method here, got {method!r}", hint="leave --method out")
    kind, wanted = find_method(method).data_kind, diagnosis.paper.data
    if (kind == "graded") != (wanted == "graded"):
        raise UserError(
            f"{name} is about {wanted}, and {method} fits {kind}",
            hint=f"use --method {diagnosis.method}",
        )


def _check_options(
    diagnosis: Diagnosis, others: dict[str, Any], method: str | None, *, fits: bool
) -> None:
    """A UserError for an option that neither the diagnosis nor its method has."""
    kinds = [diagnosis.config]
    if diagnosis.method and fits:
        kinds.append(find_method(method or diagnosis.method).config)
    both = dict.fromkeys(one.name for kind in kinds for one in fields(kind))
    config.check_names(make_dataclass("Options", both), others)


def _subject(plan: DiagnosisPlan) -> tuple[Any, dict[str, Any]]:
    """What the diagnosis measures, and the facts about it for the document."""
    if plan.data is None:
        return None, {}
    request: dict[str, Any] = {"seed": plan.seed, "data": plan.data.fingerprint}
    if plan.diagnosis.subject == "data":
        return DiagnosedData(plan.data, plan.seed), request
    if plan.diagnosis.subject == "training":
        settings = config.build(find_method(plan.method).config, plan.options)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        run = Run(rng=torch.Generator().manual_seed(plan.seed), device=device, comm=SingleProcess())
        request |= {"method": plan.method, "config": asdict(settings)}
        return DiagnosedTraining(plan.data, settings, run), request
    model = plan.model or fit(plan.method, plan.data, seed=plan.seed, **plan.options)
    request |= {"method": model.model.method, "config": dict(model.model.config)}
    return DiagnosedModel(plan.data, plan.seed, model), request


def _read(name: str, diagnosis: Diagnosis, data: Any) -> Dataset:
    kind = diagnosis.paper.data
    if data is None:
        what = {"training": "trains a model", "data": "fits models"}
        raise UserError(
            f"{name} {what.get(diagnosis.subject, 'looks at a model')} and needs data",
            hint=f"write rankfold diagnose {name} DATA, with a folder of {_KINDS[kind]}",
        )
    read = as_data(data)
    if read.kind not in (kind, *(["texts"] if kind == "interactions" else [])):
        raise UserError(
            f"{name} needs {_KINDS[kind]}, but the data is {read.kind}",
            hint=f"prepare it with --format {_FORMATS[kind]}",
        )
    check_content(read)
    return read


_KINDS = {"graded": "graded rows", "interactions": "pairs", "texts": "texts"}
_FORMATS = {"graded": "features", "interactions": "table", "texts": "texts"}


def _with_request(
    name: str, diagnosis: Diagnosis, result: DiagnosisResult, request: dict[str, Any]
) -> DiagnosisResult:
    """The result with the question, the answer and the settings in its details."""
    details = {
        "diagnosis": name,
        "question": diagnosis.summary,
        "figures": {name: figure._asdict() for name, figure in result.figures.items()},
        "follows": result.follows,
        **request,
        **result.details,
    }
    return result._replace(details=details)
