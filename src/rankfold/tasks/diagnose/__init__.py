"""The papers' theorems as measurements. To add one: a file, a line in ``DIAGNOSES``, a test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, make_dataclass
from difflib import get_close_matches
from typing import Any

import torch

from rankfold import config
from rankfold.data.integrity import check_content
from rankfold.data.prepare import as_data
from rankfold.distributed.collectives import SingleProcess
from rankfold.errors import UserError, memory_errors
from rankfold.methods.ordinal.cba import CbaConfig
from rankfold.tasks.diagnose import ranks, surrogate, whiteness
from rankfold.tasks.diagnose.finding import Finding
from rankfold.tasks.diagnose.observer import Fit
from rankfold.types import Progress, Run

METHOD = "cba"  # whose training there is to look at so far


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A measurement that a person picks by name."""

    summary: str
    config: type[Any]  # a frozen dataclass; its fields are the diagnosis's own settings
    find: Callable[[Any, Any, Progress], Finding]  # settings, what to train or None, progress
    trains: bool  # and so needs data
    large: str  # settings that memory goes by


DIAGNOSES = {
    "ranks": Diagnosis(
        "true ranks against those told from the cache",
        ranks.RanksConfig,
        ranks.find,
        trains=True,
        large="width, batch_size, cache or rows",
    ),
    "whiteness": Diagnosis(
        "whether ranks wander as white noise does",
        whiteness.WhitenessConfig,
        whiteness.find,
        trains=True,
        large="width, batch_size, cache, rows or others",
    ),
    "surrogate": Diagnosis(
        "the surrogate risk against the exact one",
        surrogate.SurrogateConfig,
        surrogate.find,
        trains=False,
        large="scores",
    ),
}


def diagnose(
    name: str,
    data: Any = None,
    options: Mapping[str, Any] | None = None,
    *,
    method: str = METHOD,
    seed: int = 0,
    progress: Progress = lambda _what, _share: None,
) -> Finding:
    """Measure.

    Args:
        name: a key of ``DIAGNOSES``.
        data: prepared data of graded rows or its folder, for a diagnosis that trains.
        options: the diagnosis's own settings and, for one that trains, the method's.
        method: whose training; ``cba``.
        seed: of the training, and of the rows that are looked at.
        progress: told now and then.
    """
    diagnosis = find_diagnosis(name)
    if method != METHOD:
        raise UserError(
            f"{name} looks at {METHOD}, not at {method!r}", hint=f"leave --method at {METHOD}"
        )
    if not 0 <= seed < 2**63:
        raise UserError(f"seed is {seed}", hint="it is 0 or more, below 2**63")
    others = dict(options or {})
    own = {key: others.pop(key) for key in _names(diagnosis.config) if key in others}
    settings = config.build(diagnosis.config, own)
    with memory_errors(f"diagnose {name} with these settings", f"try a smaller {diagnosis.large}"):
        if not diagnosis.trains:
            config.check_names(diagnosis.config, others)
            return _told(name, diagnosis.find(settings, None, progress), {})
        fit = _fit(name, diagnosis, data, others, seed)
        found = diagnosis.find(settings, fit, progress)
    how = {"method": method, "seed": seed, "config": asdict(fit.config)}
    return _told(name, found, {**how, "data": fit.data.fingerprint})


def find_diagnosis(name: str) -> Diagnosis:
    if name not in DIAGNOSES:
        near = get_close_matches(name, DIAGNOSES, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(DIAGNOSES)}"
        raise UserError(f"there is no diagnosis {name!r}", hint=hint)
    return DIAGNOSES[name]


def _names(config: type[Any]) -> list[str]:
    return [field.name for field in fields(config)]


def _fit(name: str, diagnosis: Diagnosis, data: Any, options: dict[str, Any], seed: int) -> Fit:
    """Check everything that can be checked before the work begins."""
    known = make_dataclass("Options", [*_names(diagnosis.config), *_names(CbaConfig)])
    config.check_names(known, options)
    settings = config.build(CbaConfig, options)
    if data is None:
        raise UserError(
            f"{name} looks at training, and there is no data to train on",
            hint=f"rankfold diagnose {name} DATA, a folder of graded rows",
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
    return Fit(read, settings, run)


def _told(name: str, found: Finding, how: dict[str, Any]) -> Finding:
    """With what was asked for."""
    details = {"diagnosis": name, **how, "summary": found.summary, **found.details}
    return found._replace(details=details)
