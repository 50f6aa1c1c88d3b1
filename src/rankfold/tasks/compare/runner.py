"""Tune, fit and test one method after the other; each finished part is kept at once."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rankfold import storage
from rankfold.errors import UserError
from rankfold.metrics import Propensity
from rankfold.models.grader import OPERATING, Grader, load
from rankfold.models.ranker import Ranker
from rankfold.tasks.compare import records
from rankfold.tasks.compare.examples import examples_of
from rankfold.tasks.compare.memory import watched
from rankfold.tasks.compare.plan import Entry, Plan
from rankfold.tasks.evaluate import evaluate_ranking
from rankfold.tasks.evaluate_graded import Certainty, evaluate_graded, matched
from rankfold.tasks.fit import fit, patient_interrupt
from rankfold.tasks.tune import tune
from rankfold.tasks.tune.records import MODEL
from rankfold.training.history import History, Report, validated
from rankfold.types import Model, Progress, Step

BINS = 10  # of calibration curves
MEMORY_BUDGET = 2**30


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an entry: what was kept of it, or why it failed."""

    entry: Entry
    error: Mapping[str, str] | None
    tuned: Mapping[str, Any] | None = None  # None: it was not tuned
    seeds: Sequence[storage.Folder] = ()  # as ``keeping.keep`` wrote them

    @property
    def records(self) -> list[dict[str, Any]]:
        return [folder.manifest["record"] for folder in self.seeds]


def run_entry(plan: Plan, entry: Entry, progress: Progress) -> Outcome:
    """Do what is not done yet; whatever a method raises is told in its place in the results."""
    try:
        records.begin(plan, entry)
        tuned = _tuned(plan, entry, progress)
        settings = entry.settings if tuned is None else tuned["settings"]
        seeds = [_tested(plan, entry, settings, seed, progress) for seed in plan.seeds(entry)]
    except Exception as error:
        return Outcome(entry, _told(plan, entry, error))
    return Outcome(entry, None, tuned, seeds)


def _told(plan: Plan, entry: Entry, error: Exception) -> dict[str, str]:
    if isinstance(error, UserError):
        return {"message": str(error), "hint": error.hint}
    where = records.error_of(plan, entry)
    storage.write_text(where, "".join(traceback.format_exception(error)))
    message = f"{type(error).__name__}: {error}".splitlines()[0]
    return {"message": message, "hint": f"a bug, not yours: {where} says where"}


# ---------------------------------------------------------------------------------- tuning


def _tuned(plan: Plan, entry: Entry, progress: Progress) -> Mapping[str, Any] | None:
    """The settings that the budget found, and what it took; None without a budget."""
    if not plan.tunes:
        return None
    found = records.kept(plan, entry, "tuned")
    if found is None:
        found = records.keep(plan, entry, "tuned", _tune(plan, entry, progress))
    record: Mapping[str, Any] = found.manifest["record"]
    return record


def _tune(plan: Plan, entry: Entry, progress: Progress) -> dict[str, Any]:
    what, folder = f"{entry.name}, ", records.home_of(plan, entry) / "tuning"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _stopping_after():
        found = tune(
            entry.method,
            plan.data,
            out=folder,
            trials=plan.how.trials,
            budget=plan.how.budget,
            metric=plan.selected_by,
            seed=entry.first_seed,
            fixed=entry.settings,
            device=plan.how.device,
            report=lambda word, share: progress(what + word, share),
        )
    trials: dict[str, Any] = {
        name: sum(trial.state == state for trial in found.trials)
        for name, state in (("done", "complete"), ("pruned", "pruned"), ("failed", "failed"))
    }
    trials["seconds"] = sum(trial.seconds for trial in found.trials)
    record = {"settings": dict(found.settings), "score": found.score, "trials": trials}
    del found
    records.drop(folder / MODEL)
    _free()
    return record


# ---------------------------------------------------------------------------------- one seed


def _tested(
    plan: Plan, entry: Entry, settings: Mapping[str, Any], seed: int, progress: Progress
) -> storage.Folder:
    """The fit of one seed, held against the test split once."""
    name = f"seed-{seed}"
    found = records.kept(plan, entry, name)
    if found is None:
        record, values = _fit_and_test(plan, entry, settings, seed, progress)
        found = records.keep(plan, entry, name, record, values)
    records.drop_model(plan, entry, seed)
    return found


def _fit_and_test(
    plan: Plan, entry: Entry, settings: Mapping[str, Any], seed: int, progress: Progress
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    path, what = records.model_of(plan, entry, seed), f"{entry.name}, seed {seed}"
    path.parent.mkdir(parents=True, exist_ok=True)
    with watched() as peak:
        if not path.exists():
            _fit(plan, entry, settings, seed, _reporter(what, progress))
        model = load(path)
        record, values = _test(plan, model, lambda word, share: progress(f"{what}: {word}", share))
        record |= _about(model.model) | {"seed": seed, "model_bytes": _size(path)}
        del model
        _free()
    return {**record, "peak_bytes": peak.bytes}, values


def _fit(plan: Plan, entry: Entry, settings: Mapping[str, Any], seed: int, report: Report) -> None:
    """Leave a model on disk and nothing in memory; a fit that was cut off goes on."""
    with _stopping_after():
        fit(
            entry.method,
            plan.data,
            out=records.model_of(plan, entry, seed),
            resume=True,
            refit=plan.how.refit,
            metric=plan.selected_by,
            seed=seed,
            device=plan.how.device,
            report=report,
            **settings,
        )


@contextmanager
def _stopping_after() -> Iterator[None]:
    """Stop after a fit that was interrupted in its last step: it is done, the others are not."""
    with patient_interrupt() as interrupted:
        yield
        if interrupted():
            raise KeyboardInterrupt


def _test(
    plan: Plan, model: Ranker | Grader, progress: Progress
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What is kept of a test, and the value of each query, or the score of each row."""
    if isinstance(model, Grader):
        return _test_grader(plan, model, progress)
    return _test_ranker(plan, model, progress)


def _test_ranker(
    plan: Plan, ranker: Ranker, progress: Progress
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    found = evaluate_ranking(
        ranker,
        plan.data,
        split="test",
        metrics=plan.metrics,
        propensity=Propensity(),
        strata=True,
        index="exact",
        memory_budget=MEMORY_BUDGET,
        progress=progress,
    )
    groups = [
        {"name": part.name, "queries": part.queries, "metrics": dict(part.metrics)}
        for part in found.strata
    ]
    record = {"metrics": dict(found.metrics), "queries": found.queries, "popularity": groups}
    record["examples"] = examples_of(ranker, plan.data) if plan.data.kind == "texts" else None
    values = {name: torch.from_numpy(each) for name, each in found.per_query.items()}
    return record, {**values, "rows": torch.from_numpy(found.rows)}


def _test_grader(
    plan: Plan, grader: Grader, progress: Progress
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    how = Certainty(samples=0, calibration=BINS)
    found = evaluate_graded(
        grader, plan.data, metrics=plan.metrics, how=how, progress=progress, split="test"
    )
    rows = matched(grader, plan.data, plan.data.graded("test"))
    rows = rows.select((rows.grades >= 0).nonzero().flatten())
    record = {
        "metrics": dict(found.metrics),
        "queries": found.queries,
        "popularity": [],
        "examples": None,
        "thresholds": {name: list(values) for name, values in found.thresholds.items()},
        "calibration": [[dict(bin_) for bin_ in curve] for curve in found.calibration],
    }
    return record, {"scores": grader.score(rows), "grades": rows.grades}


def _about(model: Model) -> dict[str, Any]:
    """Of a fit: its settings, how long it took, how its score rose, how many numbers it has."""
    history = model.notes["history"]
    held = [tensor for name, tensor in model.tensors.items() if name not in OPERATING]
    return {
        "settings": dict(model.config),
        "fit_seconds": sum(entry["seconds"] for entry in history),
        "steps": _steps(model.notes),
        "parameters": sum(tensor.numel() for tensor in held if tensor.is_floating_point()),
    }


def _steps(notes: Mapping[str, Any]) -> list[dict[str, float]]:
    """Seconds of training and the validation score after each step of the first fit.

    A method that chooses among many settings by itself has one point, at its end.
    """
    found, seconds = [], 0.0
    for entry in notes["history"]:
        if entry["phase"] == "fit":
            seconds += entry["seconds"]
            if "score" in entry:
                found.append({"seconds": seconds, "score": entry["score"]})
    score = validated(notes)
    return found if found or score is None else [{"seconds": seconds, "score": score}]


def _size(path: Path) -> int:
    """Bytes of a model's files; without the manifest, which holds times."""
    files = storage.read(path, "model").manifest["files"]
    return sum(entry["size"] for entry in files.values())


def _free() -> None:
    """Give back what a fit held, before the next one asks for as much."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _reporter(what: str, progress: Progress) -> Report:
    def report(history: History, step: Step) -> None:
        entry = history.entries[-1] if step.whole and history.entries else {}
        score = f", score {entry['score']:.4f}" if "score" in entry else ""
        of = history.steps
        share = step.share or (step.number / of if of else 0.0)
        progress(f"{what}: {history.phase}, step {step.number}{score}", share)

    return report
