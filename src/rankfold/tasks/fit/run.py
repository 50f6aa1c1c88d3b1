"""The run of a fit: its generator, device and index, and the validation score of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rankfold.distributed.collectives import row_offset
from rankfold.distributed.connection import device_of
from rankfold.index.inverted import build_index
from rankfold.metrics import METRICS, MetricSpec, judge, parse
from rankfold.metrics.graded import graded_mean, parse_graded
from rankfold.tasks.fit.gather import with_all_candidates
from rankfold.tasks.fit.plan import FitPlan
from rankfold.tasks.tally import score
from rankfold.types import Dataset, Graded, Interactions, Model, Run

_Validate = Callable[[Model], float]


@dataclass(frozen=True, slots=True)
class ValidationJudge:
    """The validation queries, or a sample of them drawn by the seed."""

    queries: Tensor
    truth: Interactions
    seen: Interactions
    metric: MetricSpec

    @property
    def depth(self) -> int:
        return self.metric.k

    def hidden(self, queries: Tensor) -> Interactions:
        return self.seen.select(queries)

    def values(self, queries: Tensor, ids: Tensor) -> Tensor:
        judged = judge(ids.cpu(), self.truth.select(queries))
        return METRICS[self.metric.name].value(judged, self.metric.k)


def make_judge(plan: FitPlan, data: Dataset) -> ValidationJudge | None:
    """None for graded rows and without validation."""
    if data.validation is None or data.kind == "graded":
        return None
    truth, limit = data.split("validation"), plan.options.validation_queries
    rows = torch.nonzero(truth.counts() > 0).flatten()
    before, n = row_offset(len(rows), plan.comm)
    if n > limit:
        rng = torch.Generator().manual_seed(plan.options.seed)
        sample = torch.randperm(n, generator=rng)[:limit].sort().values - before
        rows = rows[sample[(sample >= 0) & (sample < len(rows))]]
    return ValidationJudge(rows, truth, data.seen("validation"), parse(plan.metric))


def make_validator(plan: FitPlan, data: Dataset, judge: ValidationJudge | None) -> _Validate | None:
    """A function that scores a model on the judge's queries, or on all graded rows."""
    if data.kind == "graded" and data.validation is not None:
        return _graded_validator(plan, data.graded("validation"))
    if judge is None:
        return None
    options: dict[str, Any] = {
        "by": data.query_texts if plan.method.data_kind == "texts" else data.given,
        "memory_budget": plan.options.memory_budget,
        "comm": plan.comm,
        "popularity": plan.comm.sum(data.split("train").candidate_counts()),
    }

    def validate(model: Model) -> float:
        full = with_all_candidates(model, plan)
        values, _ = score(full, judge.truth, judge.seen, judge.queries, [judge.metric], **options)
        return float(values[str(judge.metric)].mean())

    return validate


def _graded_validator(plan: FitPlan, rows: Graded) -> _Validate:
    spec = parse_graded(plan.metric)
    grades, n_grades = plan.comm.gather(rows.grades), len(plan.data.candidates)

    def validate(model: Model) -> float:
        scores = plan.comm.gather(score_rows(plan, model, rows))
        return graded_mean(scores, grades, n_grades, spec)

    return validate


def score_rows(plan: FitPlan, model: Model, rows: Graded) -> Tensor:
    """One score per graded row, by a model of the plan's method; [n]."""
    score = plan.method.open(model).rows
    assert score is not None
    return score(rows)


def make_run(plan: FitPlan, data: Dataset, state: Mapping[str, Tensor] | None) -> Run:
    options = plan.options
    rng = torch.Generator().manual_seed(options.seed)
    if state is not None:
        rng.set_state(state["rng"])
    judge = make_judge(plan, data)
    return Run(
        rng=rng,
        device=device_of(_device_kind(options.device), plan.comm),
        comm=plan.comm,
        resume=state,
        validate=make_validator(plan, data, judge),
        judge=judge,
        build_index=lambda vectors: build_index(vectors, options.memory_budget),
        memory_budget=options.memory_budget,
        candidate_memory=options.candidate_memory,
    )


def _device_kind(name: str) -> str:
    if name != "auto":
        return name
    return "cuda" if torch.cuda.is_available() else "cpu"
