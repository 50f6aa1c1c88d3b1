"""Fit a method: run its steps, keep the best on validation, stop early, survive a kill."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rankfold import config
from rankfold.errors import UserError, memory_errors
from rankfold.models.grader import Grader
from rankfold.models.load import load
from rankfold.models.ranker import Ranker
from rankfold.tasks.fit.finish import finish
from rankfold.tasks.fit.plan import FitPlan, find_method, make_plan
from rankfold.tasks.fit.steps import refit_follows, run_steps
from rankfold.training import checkpoint
from rankfold.training.checkpoint import Checkpoint
from rankfold.training.history import History

__all__ = ["find_method", "fit"]


def fit(method: str, data: Any, **options: Any) -> Ranker | Grader:
    """Fit a method by name.

    Args:
        method: a key of ``METHODS``.
        data: prepared data or its folder; or training pairs without a split: a polars, pandas or
            Arrow table, a scipy.sparse matrix, arrays.
        options: settings of the method and fields of ``FitOptions``. ``rankfold methods NAME``
            lists the settings with defaults, bounds and help, as does
            ``rankfold.config.describe_settings(METHODS[name].config)``.

    Under torchrun all processes fit one model together. Rank 0 writes and returns the full model.
    The other ranks return the rows of their own queries; a grader is complete on every rank.
    """
    plan = make_plan(method, data, options)
    hint = "try a smaller width or, if the method has them, a smaller batch_size or negatives"
    with memory_errors(f"fit {method} with these settings", hint):
        return _fit(plan)


def _fit(plan: FitPlan) -> Ranker | Grader:
    saved = _find_checkpoint(plan)
    step = None if saved is None else int(saved.state["number"])
    plan.comm.agree({"step of the checkpoint": step})
    if saved is None and plan.options.resume and plan.out is not None and plan.out.exists():
        return _load_finished(plan, plan.out)
    history = History() if saved is None else saved.history
    history.is_chosen = plan.is_chosen
    state = None if saved is None else saved.state
    if history.phase == "fit":
        if state is None or not state.get("over", False):
            run_steps(plan, plan.data, history, state, plan.identity())
        if refit_follows(plan, history):
            history, state = history.refit(), None
    if history.phase == "refit":
        selected = replace(plan, settings=config.build(plan.method.config, history.settings))
        run_steps(selected, selected.train_and_validation, history, state, plan.identity())
    return finish(plan, history)


def _find_checkpoint(plan: FitPlan) -> Checkpoint | None:
    """The checkpoint to resume from, if resuming was requested and there is one."""
    if plan.out is None or not plan.options.resume:
        return None
    path = checkpoint.path_of(plan.out)
    if not path.exists():
        return None
    saved = checkpoint.load(path, plan.comm)
    checkpoint.check_same_fit(path, saved.identity, plan.identity())
    return saved


def _load_finished(plan: FitPlan, path: Path) -> Ranker | Grader:
    """The finished model of this fit; a UserError if it is the model of another."""
    loaded = load(path)
    model = loaded.model
    saved = {
        "is_chosen": True,
        **model.notes,
        **model.config,
        "method": model.method,
        **model.notes.get("asked", {}),
    }
    settings = asdict(plan.settings)
    if "asked" not in model.notes:  # an older model: settings left to the method are not recorded
        settings = {key: value for key, value in settings.items() if value is not None}
    refit = plan.options.refit and plan.data.validation is not None
    wanted = {"method": plan.name, **settings, "seed": plan.options.seed, "refit": refit}
    wanted |= {"metric": plan.metric, "data": plan.data.fingerprint}
    difference = checkpoint.describe_difference(saved, wanted)
    if difference is None and saved["is_chosen"] != plan.is_chosen:
        difference = "another patience"
    if difference is not None:
        raise UserError(
            f"{path} was finished with {difference}: there is nothing to resume",
            hint="leave --resume out to replace it, or choose another folder",
        )
    return loaded
