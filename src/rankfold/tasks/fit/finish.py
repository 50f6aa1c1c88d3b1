"""From the model that was kept to a Ranker or Grader, in memory and on disk."""

from __future__ import annotations

from dataclasses import asdict, replace

import torch
from torch import Tensor

from rankfold.data.build.graded import hashes
from rankfold.data.prepare import as_data
from rankfold.models.grader import FITTED, Grader
from rankfold.models.ranker import Ranker
from rankfold.tasks.fit.gather import gather_model
from rankfold.tasks.fit.plan import FitPlan
from rankfold.tasks.fit.run import make_run, score_rows
from rankfold.training import checkpoint
from rankfold.training.history import History
from rankfold.types import Dataset, Model, SplitName, Vocabulary


def finish(plan: FitPlan, history: History) -> Ranker | Grader:
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
        "asked": asdict(plan.settings),
    }
    model = history.model
    if plan.method.finalize is not None:
        data = plan.train_and_validation if history.phase == "refit" else plan.data
        run = make_run(plan, replace(data, validation=None), None)
        model = plan.method.finalize(model, data.split("train"), run)
    model = gather_model(replace(model, notes=notes), plan)
    graded = plan.data.kind == "graded"
    fitted = _make_grader(plan, model) if graded else _make_ranker(plan, model)
    if plan.out is not None and plan.comm.rank == 0:
        fitted.save(plan.out)
        checkpoint.remove(checkpoint.path_of(plan.out))
    plan.comm.barrier()
    return fitted


def _make_grader(plan: FitPlan, model: Model) -> Grader:
    """A grader with the scores that set its cuts: those of unseen rows, if there are any."""
    unseen = plan.data.validation is not None and not model.notes["refit"]
    split: SplitName = "validation" if unseen else "train"
    rows, comm = plan.data.graded(split), plan.comm
    tensors = {
        "operating_scores": comm.gather(score_rows(plan, model, rows)),
        "operating_grades": comm.gather(rows.grades),
        FITTED: _fitted_rows(plan, model),
    }
    notes = {**model.notes, "operating_on": split}
    model = replace(model, tensors={**model.tensors, **tensors}, notes=notes)
    return Grader(model, plan.data.candidates, plan.data.columns)


def _fitted_rows(plan: FitPlan, model: Model) -> Tensor:
    """Hashes of the rows that the model was fitted on, ascending."""
    names: tuple[SplitName, ...] = ("train", "validation") if model.notes["refit"] else ("train",)
    own = torch.cat([hashes(plan.data.graded(name)) for name in names])
    ascending: Tensor = plan.comm.gather(own).unique()
    return ascending


def _make_ranker(plan: FitPlan, model: Model) -> Ranker:
    """A ranker with its keys and seen pairs; with texts only if the method ranks by them."""
    data, texts = plan.data, {}
    if plan.comm.size > 1:
        data = as_data(plan.source) if plan.comm.rank == 0 else _with_own_keys(data)
    if plan.method.data_kind == "texts":
        texts = {name: getattr(data, name) for name in ("tokenizer", "n_tokens")}
        texts["texts"] = data.query_texts
    seen = replace(data, excluded=None).seen("test")
    return Ranker(model, data.queries, data.candidates, seen, data.excluded, **texts)


def _with_own_keys(data: Dataset) -> Dataset:
    """Data of one process, with the keys of its own queries only."""
    n, keys = data.split("train").n_queries, data.queries
    return replace(data, queries=Vocabulary(n, lambda: keys.keys.slice(data.first, n)), first=0)
