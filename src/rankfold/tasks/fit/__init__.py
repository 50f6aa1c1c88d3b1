"""Fit a method: run its steps, keep the best on validation, stop early, survive a kill."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rankfold import config
from rankfold.errors import memory_errors
from rankfold.models.grader import Grader
from rankfold.models.ranker import Ranker
from rankfold.tasks.fit.finish import finish
from rankfold.tasks.fit.plan import FitPlan, find_method, make_plan
from rankfold.tasks.fit.resume import find_checkpoint, load_finished
from rankfold.tasks.fit.steps import refit_follows, run_steps
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
    checkpoint = find_checkpoint(plan)
    step = None if checkpoint is None else int(checkpoint.state["number"])
    plan.comm.agree({"step of the checkpoint": step})
    if checkpoint is None and plan.options.resume and plan.out is not None and plan.out.exists():
        return load_finished(plan, plan.out)
    history = History() if checkpoint is None else checkpoint.history
    history.is_chosen = plan.is_chosen
    state = None if checkpoint is None else checkpoint.state
    if history.phase == "fit":
        if state is None or not state.get("over", False):
            run_steps(plan, plan.data, history, state, plan.identity())
        if refit_follows(plan, history):
            history, state = history.refit(), None
    if history.phase == "refit":
        selected = replace(plan, settings=config.build(plan.method.config, history.settings))
        run_steps(selected, selected.train_and_validation, history, state, plan.identity())
    return finish(plan, history)
