"""Fit a method: run its steps, keep the best on validation, stop early, survive a kill."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from inspect import cleandoc
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from rankfold import config, storage
from rankfold.data.build.column_profile import profile_of
from rankfold.data.build.graded import gather_rows
from rankfold.data.build.row_hashes import hashes
from rankfold.data.prepare import as_data
from rankfold.distributed.collectives import row_offset
from rankfold.errors import UserError, memory_errors
from rankfold.kernels.threads import limited_threads
from rankfold.methods import METHODS
from rankfold.models import probabilities, thresholds
from rankfold.models.cuts import CALIBRATION
from rankfold.models.explain.grading import names_of_columns, permutation_importance
from rankfold.models.grader import FITTED, Grader
from rankfold.models.imports import NOTE, modules_of
from rankfold.models.load import load
from rankfold.models.model_card import DATA_SUMMARY, summary_of
from rankfold.models.ranker import Ranker
from rankfold.models.search import Filter
from rankfold.models.update import read_seen
from rankfold.samplers.known_positives import hits
from rankfold.tasks.fit.plan import FitPlan, make_plan
from rankfold.tasks.fit.run import (
    gather_model,
    make_judge,
    make_run,
    refit_follows,
    run_steps,
    score_rows,
)
from rankfold.tasks.fit.start import about
from rankfold.tasks.options import FitOptions
from rankfold.training import checkpoint
from rankfold.training.checkpoint import Checkpoint
from rankfold.training.early_stopping import History
from rankfold.types import Comm, Graded, Model, SplitName, TopK, Vocabulary

_CALIBRATED = 3000  # validation queries, at most
_PROFILED_ROWS = 200_000  # of train, for the profile of the columns


@config.explicit(FitOptions, more=True)
def fit(method: str, data: Any, **options: Any) -> Ranker | Grader:
    """Fit a method by name.

    Args:
        method: a key of ``METHODS``.
        data: prepared data or its folder; or training pairs without a split: a polars, pandas or
            Arrow table, a scipy.sparse matrix, arrays.
        options: settings of the method, and the options of every fit; both are listed below.

    Under torchrun all processes fit one model together. Rank 0 writes and returns the full model.
    The other ranks return the rows of their own queries; a grader is complete on every rank.
    """
    return fit_plan(make_plan(method, data, options))


fit.__doc__ = "\n\n".join(
    [
        cleandoc(fit.__doc__ or ""),
        "Settings of each method; `rankfold methods NAME` also names the values they accept.",
        *(
            config.listed(f"{name}: {method.summary}", method.config)
            for name, method in METHODS.items()
        ),
    ]
)


def fit_plan(plan: FitPlan) -> Ranker | Grader:
    """Carry out a plan whose checks are done."""
    hint = "try a smaller width or, if the method has them, a smaller batch_size or negatives"
    within = memory_errors(f"fit {plan.name} with these settings", hint)
    with within, limited_threads(own=plan.method.own_threads), _reserved(plan):
        return _fit(plan)


@contextmanager
def _reserved(plan: FitPlan) -> Iterator[None]:
    """Hold ``MODEL.checkpoint``, and MODEL if it exists: no other process writes them meanwhile."""
    if plan.out is None or plan.comm.rank > 0:
        yield
        return
    path = checkpoint.path_of(plan.out)
    with storage.write_errors(path):
        path.mkdir(exist_ok=True)
        with storage.locked(path, of=plan.out):
            try:
                with storage.locked(plan.out) if plan.out.exists() else nullcontext():
                    yield
            finally:
                with suppress(OSError):
                    path.rmdir()  # nothing was saved in it


def _fit(plan: FitPlan) -> Ranker | Grader:
    saved = find_checkpoint(plan)
    step = None if saved is None else int(saved.state["number"])
    plan.comm.agree({"step of the checkpoint": step})
    if saved is None and plan.options.resume and plan.out is not None and plan.out.exists():
        return load_finished(plan, plan.out)
    history = History() if saved is None else saved.history
    history.is_chosen = plan.is_chosen
    state = None if saved is None else saved.state
    if history.phase == "fit":
        if state is None or not state.get("over", False):
            run_steps(plan, plan.data, history, state, plan.identity())
        history.model = _with_decisions(plan, history.model)
        if refit_follows(plan, history):
            assert history.model is not None
            history, state = history.refit(thresholds.tensors_of(history.model)), None
    if history.phase == "refit":
        selected = replace(plan, settings=config.build(plan.method.config, history.settings))
        run_steps(selected, selected.train_and_validation, history, state, plan.identity())
    return _finish(plan, history)


def find_checkpoint(plan: FitPlan) -> Checkpoint | None:
    """The checkpoint to resume from, if resuming was requested and there is one."""
    if plan.out is None or not plan.options.resume:
        return None
    path = checkpoint.path_of(plan.out)
    if not checkpoint.exists(path):
        return None
    saved = checkpoint.load(path, plan.comm)
    hint = "give the settings it was made with, or start over without --resume"
    what = f"the checkpoint {path} was made"
    checkpoint.check_same(what, saved.identity, plan.identity(), hint)
    return saved


def load_finished(plan: FitPlan, path: Path) -> Ranker | Grader:
    """The finished model of this fit; a UserError if it is the model of another."""
    loaded = load(path)
    model = loaded.model
    saved = {
        **model.notes,
        **model.config,
        "method": model.method,
        **model.notes.get("asked", {}),
    }
    refit = plan.options.refit and plan.data.validation is not None
    own = {"seed": plan.options.seed, "refit": refit}
    wanted = {"method": plan.name, **asdict(plan.settings), **own}
    wanted |= {"metric": plan.metric, "data": plan.data.fingerprint}
    wanted["from_model"] = None if plan.start is None else about(plan.start)
    if plan.data.kind == "graded":
        wanted["calibration_share"] = plan.calibration_share
    difference = checkpoint.describe_difference(saved, wanted)
    if difference is None and saved["is_chosen"] != plan.is_chosen:
        difference = "another patience"
    if difference is not None:
        raise UserError(
            f"{path} was finished with {difference}: there is nothing to resume",
            hint="leave --resume out to replace it, or choose another folder",
        )
    return loaded


def _with_decisions(plan: FitPlan, model: Model | None) -> Model | None:
    """The model with probabilities and thresholds, learnt from its lists of validation queries."""
    judge = make_judge(plan, plan.data)
    texts = plan.method.data_kind == "texts"
    if model is None or judge is None or not texts or plan.comm.size > 1:
        return model
    words = plan.data.query_texts
    assert words is not None
    rows = judge.queries[words.counts()[judge.queries] > 0][:_CALIBRATED]
    if len(rows) == 0:
        return model
    searcher, truth = _make_ranker(plan, model).searcher, judge.truth.select(rows)
    top = searcher.of_queries(rows, probabilities.DEPTH, Filter(judge.hidden(rows)))
    top = TopK(top.ids.cpu(), top.scores.cpu())
    right = hits(truth, torch.arange(len(rows)), top.ids.clamp(min=0))
    note = probabilities.learn(top, right & (top.ids >= 0))
    notes = {**model.notes, probabilities.NOTE: note} if note else model.notes
    return replace(model, notes=notes, tensors={**model.tensors, **thresholds.learn(top, truth)})


# ---------------------------------------------------------------------------------- the model


def _finish(plan: FitPlan, history: History) -> Ranker | Grader:
    """The Ranker or Grader of the kept model; written to ``out``, if there is one."""
    assert history.model is not None
    notes = {
        **history.notes,
        **history.model.notes,
        "history": history.entries,
        "chosen": history.number,
        "is_chosen": plan.is_chosen,
        "refit": history.phase == "refit",
        "seed": plan.options.seed,
        "metric": plan.metric,
        "data": plan.data.fingerprint,
        DATA_SUMMARY: summary_of(plan.data.summary),
        "asked": asdict(plan.settings),
    }
    if plan.data.kind == "graded":
        notes["calibration_share"] = plan.calibration_share
        notes["query_column"] = plan.data.summary.get("query_column")
    if plan.start is not None:
        notes["from_model"] = about(plan.start)
    if own := modules_of(plan.name, history.model.config):
        notes[NOTE] = own
    model = replace(history.model, tensors={**history.model.tensors, **history.tensors})
    if plan.method.finalize is not None:
        data = plan.train_and_validation if history.phase == "refit" else plan.data
        run, began = make_run(plan, replace(data, validation=None), None), perf_counter()
        model = plan.method.finalize(model, data.split("train"), run)
        history.entries[-1]["seconds"] += perf_counter() - began
    model = gather_model(replace(model, notes=notes), plan)
    graded = plan.data.kind == "graded"
    fitted = _make_grader(plan, model) if graded else _make_ranker(plan, model)
    if plan.out is not None and plan.comm.rank == 0:
        fitted.save(plan.out)
        checkpoint.remove(checkpoint.path_of(plan.out))
    plan.comm.barrier()
    return fitted


def _make_grader(plan: FitPlan, model: Model) -> Grader:
    """A grader with the scores that set its cuts: those of unseen rows, if there are any.

    It also has the hashes of the rows that it was fitted on, ascending.
    """
    unseen = plan.data.validation is not None and not model.notes["refit"]
    split: SplitName = "validation" if unseen else "train"
    rows = plan.data.graded(split) if plan.calibration is None else plan.calibration
    fitted: Sequence[SplitName] = ("train", "validation") if model.notes["refit"] else ("train",)
    comm = plan.comm
    tensors = {
        "operating_scores": comm.gather(score_rows(plan, model, rows)),
        "operating_grades": comm.gather(rows.grades),
        FITTED: comm.gather(
            torch.cat([hashes(plan.data.graded(name)) for name in fitted])
        ).unique(),
        **_profile(plan),
    }
    source = split if plan.calibration is None else CALIBRATION
    notes = {**model.notes, "operating_on": source}
    model = replace(model, tensors={**model.tensors, **tensors}, notes=notes)
    grader = Grader(model, plan.data.candidates, plan.data.columns)
    if (importance := _importance(grader, rows, comm)) is not None:
        notes["importance"] = importance
    return grader


def _profile(plan: FitPlan) -> dict[str, Tensor]:
    """What the columns of the training rows hold, by a sample of them."""
    rows = replace(plan.data.graded("train"), images=None)
    n = row_offset(len(rows), plan.comm)[1]
    sample = rows.select(torch.arange(0, len(rows), max(1, -(-n // _PROFILED_ROWS))))
    return profile_of(gather_rows(sample, plan.comm)).to_tensors()


def _importance(grader: Grader, rows: Graded, comm: Comm) -> dict[str, Any] | None:
    """How much each column matters on kept rows, the most important first; None for images."""
    if grader.columns is None or rows.images is not None:
        return None
    rows = gather_rows(rows, comm)
    known = rows.select((rows.grades >= 0).nonzero().flatten())
    if len(known.grades.unique()) < 2:
        return None
    gains = None if grader.opened.gain is None else grader.opened.gain()
    values = permutation_importance(grader.score, known, len(grader.grades), gains)
    names = names_of_columns(grader.columns)
    order = values.argsort(descending=True, stable=True).tolist()
    importance = {
        "by": "permutation",
        "columns": {names[place]: float(values[place]) for place in order},
    }
    if gains is not None:
        importance["gain"] = {names[place]: float(gains[place]) for place in order}
    return importance


def _make_ranker(plan: FitPlan, model: Model) -> Ranker:
    """A ranker with its keys and seen pairs; with texts only if the method ranks by them."""
    data, texts = plan.data, {}
    if plan.comm.size > 1:
        n, keys, first = data.split("train").n_queries, data.queries, data.first
        own = Vocabulary(n, lambda: keys.keys.slice(first, n))  # the keys of its own queries
        data = as_data(plan.source) if plan.comm.rank == 0 else replace(data, queries=own, first=0)
    if plan.method.data_kind == "texts":
        texts = {name: getattr(data, name) for name in ("tokenizer", "n_tokens")}
        texts["texts"] = data.query_texts
    seen = replace(data, excluded=None).seen("test")
    if not model.notes.get("by_time"):
        seen = replace(seen, times=None)
    features = data.candidate_features
    ranker = Ranker(
        model, data.queries, data.candidates, seen, data.excluded, features=features, **texts
    )
    if data.validation is None or model.notes.get("refit"):
        return ranker
    return read_seen(ranker, data.split("validation").counts().nonzero().flatten())
