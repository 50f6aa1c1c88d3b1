"""The plan of ``tune``, after all of its checks."""

from pathlib import Path
from typing import Any

from rankfold import config
from rankfold.data.prepare import as_data
from rankfold.tasks.dry_run import outline
from rankfold.tasks.options import TuneOptions
from rankfold.tasks.tune import folder
from rankfold.tasks.tune.plan import TunePlan, make_plan
from rankfold.types import Choices, Range


def outline_tune(
    method: str, data: str | Path, *, out: str | Path, **options: Any
) -> dict[str, Any]:
    """Check a search and outline it; the arguments are those of ``tune``."""
    checked = config.build(TuneOptions, {"out": out, **options})
    folder.import_optuna()
    plan = make_plan(method, as_data(data), checked)
    folder.check_folder(plan.folder)
    trials = folder.read_trials(plan)
    left = None if plan.limit is None else max(0, plan.limit - len(trials))
    used = sum(trial.seconds for trial in trials)
    time: tuple[float | None, str | None] = (None, None)
    if plan.budget is not None:
        time = max(0.0, plan.budget - used), "--budget, and the rest of the last trial"
    elif trials and left is not None:
        time = left * used / len(trials), f"the mean of the {len(trials)} trials so far"
    work = {
        "method": method,
        "fixed": dict(checked.fixed),
        "searched": {name: _range(where) for name, where in plan.space.items()},
        "metric": plan.fit.metric,
        "trials": plan.limit,
        "of these done": len(trials) or None,
    }
    return outline("tune", work, [data], {plan.folder: None}, time=time, notes=_notes(plan))


def _range(where: Range | Choices) -> str:
    if isinstance(where, Choices):
        return "|".join(map(str, where.values))
    return f"{where.low:g} to {where.high:g}{' (log)' if where.log else ''}"


def _notes(plan: TunePlan) -> list[str]:
    if plan.space:
        return []
    tunes = plan.fit.method.self_tuning
    why = "selects its own settings" if tunes else "has nothing to search"
    return [f"{plan.fit.name} {why}: it is fitted once"]
