"""What a search leaves in its folder beside the study: trials, the best settings, their model."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import fields, replace

from rankfold import storage
from rankfold.models.grader import Grader, load
from rankfold.models.ranker import Ranker
from rankfold.tasks.fit import fit
from rankfold.tasks.tune.plan import Search, Trial, best_of
from rankfold.tasks.update import exists

TRIALS, BEST, MODEL = "trials.csv", "best.toml", "model"


def save(search: Search, model: Ranker | Grader, number: int) -> None:
    """Make this the folder's model, marked by its trial."""
    marked = replace(model.model, notes={**model.model.notes, "trial": number})
    replace(model, model=marked).save(search.folder / MODEL)


def model_of(search: Search, best: Trial) -> Ranker | Grader:
    """The model of the best trial; fitted again if a kill came between, or it was removed."""
    path = search.folder / MODEL
    model = load(path) if exists(path) else None
    if model is None or model.model.notes.get("trial") != best.number:
        save(search, fit(**search.fitting(search.settings(best))), best.number)
        model = load(path)
    return model


def write(search: Search, trials: list[Trial]) -> None:
    """The trials as a table, and the best settings as TOML."""
    table, columns = io.StringIO(), [one.name for one in fields(Trial) if one.name != "settings"]
    writer = csv.DictWriter(table, [*columns, *search.space], lineterminator="\n")
    writer.writeheader()
    for trial in trials:
        row = {name: getattr(trial, name) for name in columns}
        writer.writerow({**row, **trial.settings})
    storage.write_text(search.folder / TRIALS, table.getvalue())
    best = best_of(trials)
    if best is not None:
        storage.write_text(search.folder / BEST, _to_toml(search, best, len(trials)))


def _to_toml(search: Search, best: Trial, n_trials: int) -> str:
    name, metric = search.job.name, search.job.metric
    again = f"--config {search.folder / BEST} --metric {metric} --seed {search.how.seed}"
    lines = [
        f"# {name}: {metric} {best.score:.6f} on validation, trial {best.number} of {n_trials}",
        f"# rankfold fit {name} DATA --out MODEL {again}",
    ]
    usual = search.job.method.config()
    for setting, value in search.settings(best).items():
        if value is not None or getattr(usual, setting) is not None:
            lines.append(f"{setting} = {json.dumps('none' if value is None else value)}")
    return "\n".join(lines) + "\n"
