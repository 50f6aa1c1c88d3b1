"""The loop over a method's steps, the run that they are given, and the model of all processes.

Each step is scored on validation; the loop writes checkpoints and stops early.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from rankfold.distributed.collectives import row_offset
from rankfold.distributed.connection import device_of
from rankfold.index.inverted import build_index
from rankfold.interrupts import deferred_interrupt
from rankfold.kernels.sparse import in_file
from rankfold.metrics import METRICS, MetricSpec, parse
from rankfold.metrics.graded import graded_mean, parse_graded
from rankfold.metrics.judged import judge
from rankfold.notebook import shown
from rankfold.tasks.fit.plan import FitPlan
from rankfold.tasks.fit.progress import reporter
from rankfold.tasks.metric_totals import score
from rankfold.training import checkpoint
from rankfold.training.checkpoint import Checkpoint
from rankfold.training.early_stopping import History, timed
from rankfold.types import Dataset, Graded, Interactions, Model, Run, offsets_of

_OF_PAIRS = ("candidates_of_queries", "grades_of_queries")  # tensors with a row per pair
_Validate = Callable[[Model], float]


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
    report = plan.options.report or reporter(shown, plan.metric)
    started = saved = monotonic()
    with deferred_interrupt() as interrupted:
        before = 0.0 if state is None else float(state.get("seconds", 0.0))
        for step in timed(lambda: plan.method.fit(data, plan.settings, run), before):
            if step.whole:
                scored = validate is not None and step.model is not None
                history.note(step, validate(step.model) if scored else None)  # type: ignore[misc, arg-type]
            if plan.comm.rank == 0:
                report(history, step)
            due = monotonic() - saved >= plan.options.checkpoint_seconds
            votes = [_is_late(plan, history, monotonic() - started), due, interrupted()]
            # clocks and signals differ between processes: the vote of any of them counts
            late, due, stop = plan.comm.sum(torch.tensor(votes, dtype=torch.int32)).bool().tolist()
            done = step.whole and history.is_over(step, plan.patience)
            over = done or (step.whole and late)
            if over and not done:
                history.entries[-1]["cut_after"] = plan.options.seconds
            if over and not (stop and refit_follows(plan, history)):
                return
            if plan.out is not None and (due or stop):
                extra = {"number": torch.tensor(step.number), "rng": run.rng.get_state()}
                extra["over"] = torch.tensor(over)  # only a refit follows
                extra["seconds"] = torch.tensor(0.0 if step.whole else step.seconds)
                saved_state, per_query = {**step.state(), **extra}, plan.method.per_query
                now = Checkpoint(identity, history, saved_state, step.divided, per_query)
                checkpoint.save(checkpoint.path_of(plan.out), now, plan.comm)
                saved = monotonic()
            if stop:
                raise KeyboardInterrupt


def refit_follows(plan: FitPlan, history: History) -> bool:
    return plan.options.refit and plan.data.validation is not None and history.phase == "fit"


def _is_late(plan: FitPlan, history: History, seconds: float) -> bool:
    """Whether the time of the fit is up, counted from this call. A refit is not cut short.

    Neither is a self-tuning method: its steps have no model before the last.
    """
    limit = plan.options.seconds
    if limit is None or history.phase == "refit" or plan.method.self_tuning:
        return False
    return seconds >= limit and history.model is not None


# ---------------------------------------------------------------------------------- the run


def make_run(plan: FitPlan, data: Dataset, state: Mapping[str, Tensor] | None) -> Run:
    options, kind = plan.options, plan.options.device
    if kind == "auto":
        kind = "cuda" if torch.cuda.is_available() else "cpu"
    rng = torch.Generator().manual_seed(options.seed)
    if state is not None:
        rng.set_state(state["rng"])
    judge = make_judge(plan, data)
    return Run(
        rng=rng,
        device=device_of(kind, plan.comm),
        comm=plan.comm,
        resume=state,
        validate=make_validator(plan, data, judge),
        judge=judge,
        build_index=lambda vectors: build_index(vectors, options.memory_budget),
        memory_budget=options.memory_budget,
        candidate_memory=options.candidate_memory,
        start=plan.start,
    )


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
        rng = torch.Generator().manual_seed(0)  # the seed of a fit does not change its judge
        sample = torch.randperm(n, generator=rng)[:limit].sort().values - before
        rows = rows[sample[(sample >= 0) & (sample < len(rows))]]
    return ValidationJudge(rows, truth, data.seen("validation"), parse(plan.metric))


def make_validator(plan: FitPlan, data: Dataset, judge: ValidationJudge | None) -> _Validate | None:
    """A function that scores a model on the judge's queries, or on all graded rows."""
    if data.kind == "graded" and data.validation is not None:
        rows, spec = data.graded("validation"), parse_graded(plan.metric)
        grades, n_grades = plan.comm.gather(rows.grades), len(plan.data.candidates)

        def grade(model: Model) -> float:
            scores = plan.comm.gather(score_rows(plan, model, rows))
            return graded_mean(scores, grades, n_grades, spec)

        return grade
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


def score_rows(plan: FitPlan, model: Model, rows: Graded) -> Tensor:
    """One score per graded row, by a model of the plan's method; [n]."""
    score = plan.method.open(model).rows
    assert score is not None
    return score(rows)


# ---------------------------------------------------------------------------------- all processes


def with_all_candidates(model: Model, plan: FitPlan) -> Model:
    """The model with all candidates, where each rank has the vectors of some."""
    gathered = {
        name: _all_rows(tensor, plan, on_all=True)
        for name, tensor in model.tensors.items()  # in the same order on all ranks
        if _is_divided(name, tensor, plan)
    }
    tensors = {**model.tensors, **gathered}
    if any(table.device != model.tensors[name].device for name, table in gathered.items()):
        tensors = {name: tensor.cpu() for name, tensor in tensors.items()}  # beside the file
    return replace(model, tensors=tensors)


def gather_model(model: Model, plan: FitPlan) -> Model:
    """The model on the CPU: rank 0 has the rows of all queries, other ranks their own.

    Divided candidate tables become complete on all ranks, as files private to each process.
    """
    tensors = {name: tensor.cpu() for name, tensor in model.tensors.items()}
    if "offsets" in tensors:  # those of each rank count from 0
        sizes = _all_rows(tensors["offsets"].diff(), plan, on_all=False)
        if plan.comm.rank == 0:
            tensors["offsets"] = offsets_of(sizes)
    for name, tensor in tensors.items():
        divided = _is_divided(name, tensor, plan)
        if name in (*plan.method.per_query, *_OF_PAIRS) or divided:
            table = _all_rows(tensor, plan, on_all=divided)
            tensors[name] = table if divided or plan.comm.rank == 0 else tensor
    return replace(model, tensors=tensors)


def _is_divided(name: str, tensor: Tensor, plan: FitPlan) -> bool:
    """Whether each rank has the rows of some candidates."""
    return name in plan.method.per_candidate and len(tensor) < len(plan.data.candidates)


def _all_rows(own: Tensor, plan: FitPlan, *, on_all: bool) -> Tensor:
    """The rows of all processes, on rank 0 or on all; in blocks, on disk if they are too large."""
    comm, budget = plan.comm, plan.options.memory_budget
    receives = on_all or comm.rank == 0
    exchange = comm.gather if on_all else comm.collect
    if comm.size == 1:
        return own
    lengths = comm.gather(torch.tensor([len(own)])).tolist()
    shape, row = (sum(lengths), *own.shape[1:]), own[:1].nbytes
    table = own[:0]
    if receives:
        in_memory = shape[0] * row <= budget
        table = own.new_empty(shape) if in_memory else in_file(shape, own.dtype)
    step = max(1, budget // 4 // max(1, row * comm.size))
    for start in range(0, max(lengths), step):
        block = exchange(own[start : start + step])
        sizes = [min(max(0, length - start), step) for length in lengths]
        parts = block.split(sizes) if receives else []
        for rank, part in enumerate(parts):
            first = sum(lengths[:rank]) + start
            table[first : first + len(part)] = part
    return table
