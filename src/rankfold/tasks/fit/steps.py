"""The loop over a method's steps: score each, checkpoint, stop early."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from rankfold.interrupts import deferred_interrupt
from rankfold.tasks.fit.plan import FitPlan
from rankfold.tasks.fit.run import make_run
from rankfold.training import checkpoint
from rankfold.training.checkpoint import Checkpoint
from rankfold.training.history import History
from rankfold.types import Comm, Dataset


def run_steps(
    plan: FitPlan,
    data: Dataset,
    history: History,
    state: Mapping[str, Tensor] | None,
    identity: dict[str, Any],
) -> None:
    """Run the method's steps, scoring each, until the history is over.

    ``identity`` goes into the checkpoints: the settings as given, not those selected on the way.
    """
    run = make_run(plan, data, state)
    validate = None if plan.method.self_tuning else run.validate
    started = saved = monotonic()
    with deferred_interrupt() as interrupted:
        for step in plan.method.fit(data, plan.settings, run):
            if step.whole:
                scored = validate is not None and step.model is not None
                history.note(step, validate(step.model) if scored else None)  # type: ignore[misc, arg-type]
            if plan.comm.rank == 0:
                plan.options.report(history, step)
            late, due, stop = _any_rank(
                plan.comm,
                _is_late(plan, history, monotonic() - started),
                monotonic() - saved >= plan.options.checkpoint_seconds,
                interrupted(),
            )
            over = step.whole and (late or history.is_over(step, plan.patience))
            if over and not (stop and refit_follows(plan, history)):
                return
            if plan.out is not None and (due or stop):
                extra = {"number": torch.tensor(step.number), "rng": run.rng.get_state()}
                extra["over"] = torch.tensor(over)  # only a refit follows
                saved_state, per_query = {**step.state(), **extra}, plan.method.per_query
                now = Checkpoint(identity, history, saved_state, step.divided, per_query)
                checkpoint.save(checkpoint.path_of(plan.out), now, plan.comm)
                saved = monotonic()
            if stop:
                raise KeyboardInterrupt


def refit_follows(plan: FitPlan, history: History) -> bool:
    return plan.options.refit and plan.data.validation is not None and history.phase == "fit"


def _any_rank(comm: Comm, *votes: bool) -> tuple[bool, ...]:
    """For each vote, whether any process has it: clocks and signals differ between processes."""
    return tuple(bool(votes) for votes in comm.sum(torch.tensor(votes, dtype=torch.int32)))


def _is_late(plan: FitPlan, history: History, seconds: float) -> bool:
    """Whether the time of the fit is up, counted from this call. A refit is not cut short.

    Neither is a self-tuning method: its steps have no model before the last.
    """
    limit = plan.options.seconds
    if limit is None or history.phase == "refit" or plan.method.self_tuning:
        return False
    return seconds >= limit and history.model is not None
