"""Blend two fitted models: their scores are added, with a share chosen on validation."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rankfold import config
from rankfold.data.prepare import as_data
from rankfold.errors import UserError
from rankfold.methods import METHODS
from rankfold.methods.closed_form.blend import Config, blend_models, find_part, with_sweeps
from rankfold.models.grader import Grader
from rankfold.models.load import load
from rankfold.models.ranker import Ranker
from rankfold.tasks.fit import fit_plan
from rankfold.tasks.fit.plan import FitPlan, make_plan
from rankfold.tasks.options import FitOptions
from rankfold.types import Dataset, Model, Run, Step

_FROM_MODELS = ("first", "second", "settings", "width", "refit", "resume")  # not options
_CHANGES = ("added", "extended", "removed")  # notes of what was done to a model after its fit


@config.explicit(FitOptions, omit=_FROM_MODELS, more=True)
def blend(
    models: Sequence[str | Path | Ranker | Grader],
    data: Any,
    share: float | None = None,
    out: str | Path | None = None,
    **options: Any,
) -> Ranker:
    """Blend two fitted models into one of the method ``blend``. Neither is fitted again.

    Args:
        models: two models of different methods that answer histories, or their folders.
        data: the prepared data that both were fitted on, or its folder.
        share: the weight of the second model's scores, from 0 to 1; None: chosen on validation,
            which models of a fit with ``refit`` have already seen.
        out: the folder to write.
        options: ``path_queries`` of ``blend``, and the options of ``fit`` that do not concern
            training, such as ``metric`` and ``device``.
    """
    blended = fit_plan(plan_blend(models, data, {**options, "share": share, "out": out}))
    assert isinstance(blended, Ranker)
    return blended


def plan_blend(
    models: Sequence[str | Path | Ranker | Grader], data: Any, options: Mapping[str, Any]
) -> FitPlan:
    """The plan of a blend, whose checks are done; all other arguments of ``blend`` are options."""
    for name in _FROM_MODELS:
        if name in options:
            hint = "leave it out: both models are already fitted"
            raise UserError(f"`{name}` is not an option of `blend`", hint=hint)
    if len(models) != 2:
        raise UserError(f"blend needs two models, got {len(models)}", hint="name two models")
    dataset, source = as_data(data), str(data) if isinstance(data, str | Path) else "the data"
    named = [_open(given) for given in models]
    for name, ranker in named:
        _check_fitted_on(name, ranker, dataset, source)
    refit = _is_refit(named)
    parts = [with_sweeps(one.model, one.model.notes["chosen"]) for _, one in named]
    first, second = (part.method for part in parts)
    settings = json.dumps({part.method: dict(part.config) for part in parts})
    fixed = {"first": first, "second": second, "settings": settings, "refit": refit}
    plan = make_plan("blend", dataset, {**options, **fixed})
    if refit and plan.settings.share is None and dataset.validation is not None:
        raise UserError(
            "both models were fitted on the validation pairs, so these cannot choose the share",
            hint="give --set share=.5, or blend models that were fitted without --refit",
        )
    return replace(plan, method=replace(plan.method, fit=partial(_fit, parts)))


def _fit(parts: Sequence[Model], data: Dataset, config: Config, run: Run) -> Iterator[Step]:
    """The step of ``blend``, with models that are already fitted."""
    moved = [
        replace(
            part, tensors={name: tensor.to(run.device) for name, tensor in part.tensors.items()}
        )
        for part in parts
    ]
    return blend_models(METHODS, moved, data, config, run)


def _open(given: str | Path | Ranker | Grader) -> tuple[str, Ranker]:
    """A model that can be blended, and its name in messages."""
    model = given if isinstance(given, Ranker | Grader) else load(given)
    method = model.model.method
    name = f"the {method} model" if given is model else str(given)
    if isinstance(model, Grader):
        raise UserError(
            f"{name} grades rows and cannot be blended",
            hint="blend two models that answer histories, such as rg2 and ease",
        )
    find_part(METHODS, method)
    return name, model


def _check_fitted_on(name: str, ranker: Ranker, data: Dataset, source: str) -> None:
    """A UserError unless the model was fitted on ``data`` and not changed since."""
    notes, hint = ranker.model.notes, f"fit both models on {source}"
    if any(change in notes for change in _CHANGES):
        raise UserError(
            f"{name} was changed after its fit",
            hint="blend first; then use `add`, `extend` or `forget` on the blend",
        )
    for side in ("queries", "candidates"):
        own, others = getattr(ranker, side), getattr(data, side)
        if not own.keys.equals(others.keys, check_dtypes=True):
            raise UserError(f"{name} and {source} have different {side}", hint=hint)
    if notes.get("data") != data.fingerprint:
        raise UserError(f"{name} was fitted on other data than {source}", hint=hint)


def _is_refit(named: Sequence[tuple[str, Ranker]]) -> bool:
    """Whether the models were fitted on train and validation; a UserError if only one was."""
    refitted = [name for name, ranker in named if ranker.model.notes["refit"]]
    if len(refitted) == 1:
        (other,) = (name for name, _ in named if name not in refitted)
        raise UserError(
            f"{refitted[0]} was fitted on train and validation, {other} on train alone",
            hint="fit both with --refit, or both without",
        )
    return bool(refitted)
