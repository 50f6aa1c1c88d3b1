"""The files of a search beside its study: trials, the best settings and their model."""

import csv
import io
import json
from dataclasses import fields, replace

from rankfold import storage
from rankfold.models.grader import Grader
from rankfold.models.ranker import Ranker
from rankfold.tasks.tune.plan import Trial, TunePlan, best_of

TRIALS, _BEST, MODEL = "trials.csv", "best.toml", "model"


def save_model(plan: TunePlan, model: Ranker | Grader, number: int) -> None:
    """Save the model of a trial as the model of the plan."""
    marked = replace(model.model, notes={**model.model.notes, "trial": number})
    replace(model, model=marked).save(plan.folder / MODEL)


def write(plan: TunePlan, trials: list[Trial]) -> None:
    """Write the trials as a table and the best settings as TOML."""
    table, columns = io.StringIO(), [one.name for one in fields(Trial) if one.name != "settings"]
    writer = csv.DictWriter(table, [*columns, *plan.space], lineterminator="\n")
    writer.writeheader()
    for trial in trials:
        writer.writerow({name: getattr(trial, name) for name in columns} | dict(trial.settings))
    storage.write_text(plan.folder / TRIALS, table.getvalue())
    best = best_of(trials)
    if best is not None:
        storage.write_text(plan.folder / _BEST, _to_toml(plan, best, len(trials)))


def _to_toml(plan: TunePlan, best: Trial, n_trials: int) -> str:
    name, metric = plan.fit.name, plan.fit.metric
    again = f"--config {plan.folder / _BEST} --metric {metric} --seed {plan.options.seed}"
    lines = [
        f"# {name}: {metric} {best.score:.6f} on validation, trial {best.number} of {n_trials}",
        f"# rankfold fit {name} DATA --out MODEL {again}",
    ]
    defaults = plan.fit.method.config()
    for setting, value in plan.settings(best).items():
        if value is not None or getattr(defaults, setting) is not None:
            lines.append(f"{setting} = {json.dumps('none' if value is None else value)}")
    return "\n".join(lines) + "\n"
