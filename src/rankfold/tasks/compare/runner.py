"""Tune, fit and test one method; each finished part is saved at once."""

import gc
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from rankfold import storage
from rankfold.errors import DiskError, UserError
from rankfold.interrupts import deferred_interrupt
from rankfold.models.cuts import OPERATING
from rankfold.models.grader import Grader
from rankfold.models.load import load
from rankfold.models.ranker import Ranker
from rankfold.tasks.compare import records
from rankfold.tasks.compare.examples import examples_of
from rankfold.tasks.compare.peak_memory import measure_peak
from rankfold.tasks.compare.plan import ComparePlan, Entry
from rankfold.tasks.evaluate_graded import evaluate_graded, matched
from rankfold.tasks.evaluate_ranking import evaluate_ranking
from rankfold.tasks.fit import fit
from rankfold.tasks.options import Certainty, ListOptions
from rankfold.tasks.tune import tune
from rankfold.tasks.tune.folder import MODEL
from rankfold.training.checkpoint import remove
from rankfold.training.early_stopping import History, Report, validation_score
from rankfold.types import Model, Progress, Step

_CALIBRATION_BINS = 10


def run_entry(plan: ComparePlan, entry: Entry) -> records.Outcome:
    """Run the unfinished parts of an entry; an error becomes its result."""
    progress = plan.options.progress
    try:
        records.begin(plan, entry)
        tuned = _tuned(plan, entry, progress)
        settings = entry.settings if tuned is None else tuned["settings"]
        seeds = [_test_seed(plan, entry, settings, seed, progress) for seed in plan.seeds(entry)]
    except DiskError:
        raise  # the disk failed, not the method: the same command resumes
    except Exception as error:
        return records.Outcome(entry, _describe_error(plan, entry, error))
    return records.Outcome(entry, None, tuned, seeds)


def _describe_error(plan: ComparePlan, entry: Entry, error: Exception) -> dict[str, str]:
    if isinstance(error, UserError):
        return {"message": str(error), "hint": error.hint}
    log = records.error_of(plan, entry)
    storage.write_text(log, "".join(traceback.format_exception(error)))
    message = f"{type(error).__name__}: {error}".splitlines()[0]
    return {"message": message, "hint": f"bug in rankfold; the traceback is in {log}"}


# ---------------------------------------------------------------------------------- tuning


def _tuned(plan: ComparePlan, entry: Entry, progress: Progress) -> Mapping[str, Any] | None:
    """The settings selected by tuning, with its cost; None without tuning."""
    if not plan.tunes:
        return None
    saved = records.load(plan, entry, "tuned")
    if saved is None:
        saved = records.save(plan, entry, "tuned", _tune(plan, entry, progress))
    return dict(saved.manifest["record"])


def _tune(plan: ComparePlan, entry: Entry, progress: Progress) -> dict[str, Any]:
    folder = records.home_of(plan, entry) / "tuning"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _stop_after_interrupt():
        result = tune(
            entry.method,
            plan.data,
            out=folder,
            trials=plan.options.trials,
            budget=plan.options.budget,
            space=plan.space(entry),
            seed=entry.first_seed,
            fixed=entry.settings,
            **plan.shared,
            report=lambda word, share: progress(f"{entry.name}, {word}", share),
        )
    states = Counter(trial.state for trial in result.trials)
    trials: dict[str, Any] = {"done": states["complete"], "pruned": states["pruned"]}
    trials |= {"failed": states["failed"], "seconds": sum(one.seconds for one in result.trials)}
    record = {"settings": dict(result.settings), "score": result.score, "trials": trials}
    del result
    remove(folder / MODEL)
    _free_memory()
    return record


# ---------------------------------------------------------------------------------- one seed


def _test_seed(
    plan: ComparePlan, entry: Entry, settings: Mapping[str, Any], seed: int, progress: Progress
) -> storage.Folder:
    """The results of one seed on the test split."""
    name = f"seed-{seed}"
    saved = records.load(plan, entry, name)
    if saved is None:
        record, values = _fit_and_test(plan, entry, settings, seed, progress)
        saved = records.save(plan, entry, name, record, values)
    records.drop_model(plan, entry, seed)
    return saved


def _fit_and_test(
    plan: ComparePlan, entry: Entry, settings: Mapping[str, Any], seed: int, progress: Progress
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    path, title = records.model_of(plan, entry, seed), f"{entry.name}, seed {seed}"
    path.parent.mkdir(parents=True, exist_ok=True)
    with measure_peak() as peak:
        if not path.exists():
            _fit(plan, entry, settings, seed, _reporter(title, progress))
        model = load(path)

        def report(word: str, share: float) -> None:
            progress(f"{title}: {word}", share)

        if isinstance(model, Grader):
            record, values = _test_grader(plan, model, report)
        else:
            record, values = _test_ranker(plan, model, report)
        files = storage.read(path, "model").manifest["files"]  # the manifest itself holds times
        size = sum(file["size"] for file in files.values())
        record |= _describe_fit(model.model) | {"seed": seed, "model_bytes": size}
        del model
        _free_memory()
    return {**record, "peak_bytes": peak.bytes}, values


def _fit(
    plan: ComparePlan, entry: Entry, settings: Mapping[str, Any], seed: int, report: Report
) -> None:
    """Fit a model to disk, keeping nothing in memory; an interrupted fit is resumed."""
    with _stop_after_interrupt():
        fit(
            entry.method,
            plan.data,
            out=records.model_of(plan, entry, seed),
            resume=True,
            refit=plan.options.refit,
            seed=seed,
            report=report,
            **plan.shared,
            **settings,
        )


@contextmanager
def _stop_after_interrupt() -> Iterator[None]:
    """Stop after a fit that was interrupted in its last step: the fit itself is done."""
    with deferred_interrupt() as interrupted:
        yield
        if interrupted():
            raise KeyboardInterrupt


def _test_ranker(
    plan: ComparePlan, ranker: Ranker, progress: Progress
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    options = ListOptions(strata=True)
    result = evaluate_ranking(
        ranker, plan.data, split="test", metrics=plan.metrics, options=options, progress=progress
    )
    groups = [
        {"name": part.name, "queries": part.queries, "metrics": dict(part.metrics)}
        for part in result.strata
    ]
    record = {"metrics": dict(result.metrics), "queries": result.queries, "popularity": groups}
    record["examples"] = examples_of(ranker, plan.data) if plan.data.kind == "texts" else None
    values = {name: torch.from_numpy(each) for name, each in result.per_query.items()}
    return record, {**values, "rows": torch.from_numpy(result.rows)}


def _test_grader(
    plan: ComparePlan, grader: Grader, progress: Progress
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    certainty = Certainty(bootstrap=0, calibration=_CALIBRATION_BINS)
    result = evaluate_graded(
        grader, plan.data, metrics=plan.metrics, certainty=certainty, progress=progress
    )
    rows = matched(grader, plan.data, plan.data.graded("test"))
    rows = rows.select((rows.grades >= 0).nonzero().flatten())
    record = {
        "metrics": dict(result.metrics),
        "queries": result.queries,
        "popularity": [],
        "examples": None,
        "thresholds": {name: list(values) for name, values in result.thresholds.items()},
        "calibration": [[dict(bin_) for bin_ in curve] for curve in result.calibration],
    }
    return record, {"scores": grader.score(rows), "grades": rows.grades}


def _describe_fit(model: Model) -> dict[str, Any]:
    """The settings, time, scores by time and number of parameters of a fit."""
    history = model.notes["history"]
    tensors = [tensor for name, tensor in model.tensors.items() if name not in OPERATING]
    return {
        "settings": dict(model.config),
        "fit_seconds": sum(entry["seconds"] for entry in history),
        "steps": _steps(model.notes),
        "parameters": sum(tensor.numel() for tensor in tensors if tensor.is_floating_point()),
    }


def _steps(notes: Mapping[str, Any]) -> list[dict[str, float]]:
    """Training time and validation score after each step of the fit, without the refit.

    A self-tuning method has the points that it notes itself, or one at its end.
    """
    points, seconds = [], 0.0
    scores = {point["step"]: point["score"] for point in notes.get("scores", ())}
    for entry in notes["history"]:
        if entry["phase"] == "fit":
            seconds += entry["seconds"]
            score = entry.get("score", scores.get(entry["step"]))
            if score is not None:
                points.append({"seconds": seconds, "score": score})
    score = validation_score(notes)
    return points if points or score is None else [{"seconds": seconds, "score": score}]


def _free_memory() -> None:
    """Release the memory of a fit before the next one."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _reporter(title: str, progress: Progress) -> Report:
    def report(history: History, step: Step) -> None:
        entry = history.entries[-1] if step.whole and history.entries else {}
        score = f", score {entry['score']:.4f}" if "score" in entry else ""
        of = history.steps
        share = step.share or (step.number / of if of else 0.0)
        progress(f"{title}: {history.phase}, step {step.number}{score}", share)

    return report
