"""Fit a method: run its steps, keep the best on validation, stop in time, survive a kill."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from rankfold import config, storage
from rankfold.data.build.graded import hashes, train_and_validation
from rankfold.data.integrity import check_content
from rankfold.data.prepare import as_data
from rankfold.distributed.collectives import row_offset
from rankfold.distributed.connection import connect, device_of
from rankfold.errors import UserError, memory_errors
from rankfold.index.inverted import build_index
from rankfold.interrupts import interrupt
from rankfold.kernels.sparse import in_file
from rankfold.methods import METHODS
from rankfold.metrics import METRICS, MetricSpec, judge, parse
from rankfold.metrics.graded import check_two_grades, graded_mean, parse_graded
from rankfold.models.grader import FITTED, Grader, load
from rankfold.models.ranker import Ranker
from rankfold.tasks.evaluate import Among, score
from rankfold.training import checkpoint
from rankfold.training.checkpoint import Checkpoint
from rankfold.training.history import History, Report, no_report
from rankfold.types import (
    Comm,
    Dataset,
    Graded,
    Interactions,
    Kind,
    Method,
    Model,
    Run,
    SplitName,
    Vocabulary,
)

USUAL: dict[Kind, tuple[str, int]] = {  # metric and patience, by the kind of data
    "interactions": ("ndcg@10", 3),
    "texts": ("ndcg@10", 3),
    "graded": ("pauc@fpr=0.1", 10**9),  # a schedule runs to its end, then one epoch is kept
}
TELLING = 125  # rows of validation that it takes to choose an epoch by
ENOUGH = 10  # negatives below the rate of the usual metric, of the lowest threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """How to fit, whatever the method."""

    seed: int = 0
    device: str = "auto"  # auto, cpu, cuda
    out: str | Path | None = None  # the model's folder; without it there are no checkpoints
    resume: bool = False  # go on from the checkpoint beside ``out``, if there is one
    refit: bool = False  # fit the chosen number of steps again, on train and validation
    metric: str | None = None  # the validation score; None: of ``USUAL``, or around ``fpr``
    patience: int | None = None  # steps without a better score before stopping; None: likewise,
    # and where graded rows are too few to choose by, the last step is kept
    validation_queries: int = 10_000  # at most so many, drawn by the seed
    checkpoint_seconds: float = 30.0  # between two checkpoints
    seconds: float | None = None  # after these end at the first step that leaves a model to keep
    memory_budget: int = 2**30
    candidate_memory: int = 2**34  # bytes of a table of all candidates; above, ranks divide it
    report: Report = no_report
    comm: Any = None  # the processes to fit in, a Comm; None: what torchrun started, if it did


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be fitted. Of several processes each has the data of its own queries."""

    name: str
    method: Method
    settings: Any
    data: Dataset
    how: Fitting
    comm: Comm
    given: Any  # what the data was given as: from it, all of it can be had
    is_chosen: bool = True  # the step to keep, by its validation score; else it is the last

    @property
    def out(self) -> Path | None:
        return None if self.how.out is None else Path(self.how.out)

    @property
    def metric(self) -> str:
        return self.how.metric or USUAL[self.data.kind][0]

    @property
    def patience(self) -> int:
        return self.how.patience or USUAL[self.data.kind][1]

    @property
    def whole(self) -> Dataset:
        """Train and validation as one."""
        data, train = self.data, self.data.train
        if isinstance(train, Graded):
            every = data if self.comm.size == 1 else as_data(self.given)
            return replace(data, train=train_and_validation(every, self.comm), validation=None)
        return replace(data, train=train.union(data.split("validation")), validation=None)

    def identity(self) -> dict[str, Any]:
        """What must be equal for a checkpoint to be one of this job."""
        names = ("seed", "refit", "validation_queries")
        how = {name: getattr(self.how, name) for name in names}
        how |= {"metric": self.metric, "patience": self.patience}
        return {"method": self.name, **asdict(self.settings), **how, "data": self.data.fingerprint}


def fit(method: str, data: Any, **options: Any) -> Ranker | Grader:
    """Fit a method by name.

    Args:
        method: a key of ``METHODS``.
        data: prepared data or its folder; or pairs to train on as they are: a polars, pandas or
            Arrow table, a scipy.sparse matrix, arrays.
        options: settings of the method and fields of ``Fitting``. ``rankfold methods NAME`` lists
            the settings with defaults, bounds and help; ``describe_settings(METHODS[name].config)``
            of ``rankfold.config`` does in Python.

    Under torchrun all processes fit one model together. Rank 0 writes it and gets all of it, the
    others get the rows of their own queries; a model of graded rows is whole on all.
    """
    job = plan(method, data, options)
    hint = "try a smaller width, or where there is one a smaller batch_size or negatives"
    with memory_errors(f"fit {method} with these settings", hint):
        return _fit(job)


def _fit(job: Job) -> Ranker | Grader:
    found = _find_checkpoint(job)
    job.comm.agree({"step to go on from": None if found is None else int(found.state["number"])})
    if found is None and job.how.resume and job.out is not None and job.out.exists():
        return _finished(job, job.out)
    history = History() if found is None else found.history
    history.is_chosen = job.is_chosen
    state = None if found is None else found.state
    if history.phase == "fit":
        if state is None or not state.get("over", False):
            _run(job, job.data, history, state, job.identity())
        if _goes_on(job, history):
            history, state = history.refit(), None
    if history.phase == "refit":
        again = replace(job, settings=config.build(job.method.config, history.settings))
        _run(again, again.whole, history, state, job.identity())
    return _finish(job, history)


def plan(name: str, data: Any, options: dict[str, Any]) -> Job:
    """Check everything that can be checked before the work begins."""
    method = find_method(name)
    given = {key: options.pop(key) for key in list(options) if key in Fitting.__slots__}
    how = _checked(config.build(Fitting, given))
    comm = connect() if how.comm is None else how.comm
    if comm.size > 1 and not method.distributed:
        able = ", ".join(name for name, method in METHODS.items() if method.distributed)
        raise UserError(
            f"{name} is fitted by one process, not by {comm.size}",
            hint=f"start it without torchrun; these can be divided: {able}",
        )
    settings, own = config.build(method.config, options), as_data(data, comm)
    job = Job(name, method, settings, own, how, comm, data)
    names = ("device", "resume", "metric", "memory_budget", "candidate_memory")
    alike = {name: getattr(how, name) for name in names}
    alike["out"] = None if job.out is None else str(job.out.absolute())
    comm.agree({**storage.versions(), **job.identity(), **alike})
    if "graded" in (job.data.kind, method.data_kind) and job.data.kind != method.data_kind:
        raise UserError(
            f"{name} takes {method.data_kind}, but the data is {job.data.kind}",
            hint="`rankfold methods` lists what each method takes",
        )
    if method.data_kind == "texts" and job.data.query_texts is None:
        raise UserError(
            f"{name} ranks by the texts of queries, and the data has none",
            hint="prepare it with --format texts, --query-texts, or a --source that has texts",
        )
    check_content(job.data)
    _check_metric(job)
    job = replace(job, how=replace(how, metric=_metric(job)), is_chosen=_is_telling(job))
    if job.out is not None and comm.rank == 0:
        storage.check_writable(job.out, "model")
        storage.check_writable(checkpoint.path_of(job.out), "checkpoint")
    elif job.out is None and how.resume:
        raise UserError("there is nothing to resume without an output folder", hint="give out=")
    return job


def find_method(name: str) -> Method:
    if name not in METHODS:
        near = get_close_matches(name, METHODS, n=3, cutoff=0.6)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(METHODS)}"
        raise UserError(f"there is no method {name!r}", hint=hint)
    return METHODS[name]


def _checked(how: Fitting) -> Fitting:
    for name in ("patience", "validation_queries", "memory_budget", "candidate_memory"):
        value = getattr(how, name)
        if value is not None and value < 1:
            raise UserError(f"{name} is {value}", hint="it is at least 1")
    if how.seconds is not None and not how.seconds >= 0:
        raise UserError(f"seconds is {how.seconds}", hint="it is 0 or more")
    if not how.checkpoint_seconds >= 0:
        raise UserError(f"checkpoint_seconds is {how.checkpoint_seconds}", hint="it is 0 or more")
    if not 0 <= how.seed < 2**63:
        raise UserError(f"seed is {how.seed}", hint="it is 0 or more, below 2**63")
    _device(how.device)
    return how


def _metric(job: Job) -> str:
    """What was asked for; else the usual, of a method that aims at a rate up to twice that rate.

    It is wider where validation has few negatives: the highest of these say little.
    """
    aim = getattr(job.settings, "fpr", None)
    if job.how.metric is not None or aim is None or job.data.validation is None:
        return job.metric
    known = job.comm.gather(job.data.graded("validation").grades)
    negatives = int((known == known[known >= 0].amin()).sum())
    rate = max(2 * aim, min(parse_graded(job.metric).fpr or 1.0, ENOUGH / negatives))
    return f"pauc@fpr={rate:.3g}" if rate < 1 else "auc"


def _is_telling(job: Job) -> bool:
    """Whether validation says which step to keep: of graded rows it takes some of them to.

    By fewer, an epoch would be kept by chance, most likely from before the schedule has come to its
    end. Who asks for patience, asks for a choice.
    """
    if job.data.kind != "graded" or job.data.validation is None or job.how.patience is not None:
        return True
    grades = job.data.graded("validation").grades
    return row_offset(int((grades >= 0).sum()), job.comm)[1] >= TELLING


def _check_metric(job: Job) -> None:
    if job.data.kind == "graded":
        parse_graded(job.metric)
        if job.data.validation is not None:
            hint = "prepare the data with another --split; 0.9,0,0.1 is without validation"
            grades = job.comm.gather(job.data.graded("validation").grades)
            check_two_grades(grades, "rows of the validation split", hint)
    elif (metric := METRICS.get(parse(job.metric).name)) is None or metric.reads != "truth":
        raise UserError(f"cannot validate by {job.metric}", hint="use ndcg@10 or the like")


def _find_checkpoint(job: Job) -> Checkpoint | None:
    """The checkpoint to go on from, if that was asked for and there is one."""
    if job.out is None or not job.how.resume or not checkpoint.path_of(job.out).exists():
        return None
    path = checkpoint.path_of(job.out)
    found = checkpoint.load(path, job.comm)
    checkpoint.check_same_fit(path, found.identity, job.identity())
    return found


def _finished(job: Job, path: Path) -> Ranker | Grader:
    """The model that is there already, if it is the one that is wanted."""
    ranker = load(path)
    model, how = ranker.model, job.how
    there = {
        "is_chosen": True,
        **model.notes,
        **model.config,
        "method": model.method,
        **model.notes.get("asked", {}),
    }
    asked = asdict(job.settings)
    if "asked" not in model.notes:  # what was left to the method is not known any more
        asked = {key: value for key, value in asked.items() if value is not None}
    refit = how.refit and job.data.validation is not None
    wanted = {"method": job.name, **asked, "seed": how.seed, "refit": refit}
    wanted |= {"metric": job.metric, "data": job.data.fingerprint, "is_chosen": job.is_chosen}
    for name, value in wanted.items():
        if there.get(name) != value:
            said = {"data": "on other data", "is_chosen": "with another patience"}
            what = said.get(name, f"with {name} = {there.get(name)}")
            raise UserError(
                f"{path} was finished {what}: there is nothing to resume",
                hint="leave --resume out to replace it, or name another folder",
            )
    return ranker


def _run(
    job: Job,
    data: Dataset,
    history: History,
    state: Mapping[str, Tensor] | None,
    identity: dict[str, Any],
) -> None:
    """Run the method's steps, scoring each, until the history is over.

    Checkpoints are those of ``identity``: what was asked for, not what was chosen on the way.
    """
    run = _make_run(job, data, state)
    validate = None if job.method.self_tuning else run.validate
    began = saved = monotonic()
    with patient_interrupt() as interrupted:
        for step in job.method.fit(data, job.settings, run):
            if step.whole:
                scored = validate is not None and step.model is not None
                history.note(step, validate(step.model) if scored else None)  # type: ignore[misc, arg-type]
            if job.comm.rank == 0:
                job.how.report(history, step)
            late, due, stop = _decided(
                job.comm,
                _is_late(job, history, monotonic() - began),
                monotonic() - saved >= job.how.checkpoint_seconds,
                interrupted(),
            )
            over = step.whole and (late or history.is_over(step, job.patience))
            if over and not (stop and _goes_on(job, history)):
                return
            if job.out is not None and (due or stop):
                extra = {"number": torch.tensor(step.number), "rng": run.rng.get_state()}
                extra["over"] = torch.tensor(over)  # a refit is all that follows
                state, per_query = {**step.state(), **extra}, job.method.per_query
                now = Checkpoint(identity, history, state, step.divided, per_query)
                checkpoint.save(checkpoint.path_of(job.out), now, job.comm)
                saved = monotonic()
            if stop:
                raise KeyboardInterrupt


def _decided(comm: Comm, *votes: bool) -> tuple[bool, ...]:
    """What depends on clocks and signals, decided alike by all processes: one is enough."""
    return tuple(bool(votes) for votes in comm.sum(torch.tensor(votes, dtype=torch.int32)))


def _goes_on(job: Job, history: History) -> bool:
    """Whether a refit follows."""
    return job.how.refit and job.data.validation is not None and history.phase == "fit"


def _is_late(job: Job, history: History, seconds: float) -> bool:
    """Whether the fit has had its time. The clock is that of this call; a refit is not cut short.

    Neither is a method that selects itself: its steps leave no model before the last.
    """
    if job.how.seconds is None or history.phase == "refit" or job.method.self_tuning:
        return False
    return seconds >= job.how.seconds and history.model is not None


@contextmanager
def patient_interrupt() -> Iterator[Callable[[], bool]]:
    """Let a first Ctrl-C wait for the end of the step, which can be kept; a second does not.

    Where one stands inside another, the outer one is told too.
    """
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            signal.default_int_handler(number, frame)
        asked = True

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
        ends = before in (signal.default_int_handler, interrupt)  # which the last step outlives
        if asked and callable(before) and not ends:
            before(signal.SIGINT, None)


def _make_run(job: Job, data: Dataset, state: Mapping[str, Tensor] | None) -> Run:
    rng = torch.Generator().manual_seed(job.how.seed)
    if state is not None:
        rng.set_state(state["rng"])
    return Run(
        rng=rng,
        device=device_of(_device(job.how.device).type, job.comm),
        comm=job.comm,
        resume=state,
        validate=_validator(job, data),
        judge=_judge(job, data),
        build_index=lambda vectors: build_index(vectors, job.how.memory_budget),
        memory_budget=job.how.memory_budget,
        candidate_memory=job.how.candidate_memory,
    )


def _device(name: str) -> torch.device:
    if name not in ("auto", "cpu", "cuda"):
        raise UserError(f"there is no device {name!r}", hint="it is auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("torch finds no CUDA device here", hint="use --device cpu")
    found = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(found if name == "auto" else name)


@dataclass(frozen=True, slots=True)
class _Judge:
    """(A sample of) the validation queries, drawn by the seed."""

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


def _judge(job: Job, data: Dataset) -> _Judge | None:
    if data.validation is None or data.kind == "graded":
        return None
    truth = data.split("validation")
    rows = torch.nonzero(truth.counts() > 0).flatten()
    before, n = row_offset(len(rows), job.comm)
    if n > job.how.validation_queries:
        rng = torch.Generator().manual_seed(job.how.seed)
        sample = torch.randperm(n, generator=rng)[: job.how.validation_queries]
        sample = sample.sort().values - before
        rows = rows[sample[(sample >= 0) & (sample < len(rows))]]
    return _Judge(rows, truth, data.seen("validation"), parse(job.metric))


def _validator(job: Job, data: Dataset) -> Callable[[Model], float] | None:
    """A function that scores a model on the judge's queries, or on all graded rows."""
    if data.kind == "graded" and data.validation is not None:
        return _grader(job, data.graded("validation"))
    found = _judge(job, data)
    if found is None:
        return None
    how: dict[str, Any] = {"train": data.split("train"), "texts": data.query_texts}
    how["memory_budget"] = job.how.memory_budget
    if job.comm.size > 1:
        popularity = job.comm.sum(data.split("train").candidate_counts())
        how["among"] = Among(job.comm, popularity)

    def validate(model: Model) -> float:
        whole = _with_candidates(model, job)
        per_query, _ = score(whole, found.truth, found.seen, found.queries, [found.metric], **how)
        return float(per_query[str(found.metric)].mean())

    return validate


def _grader(job: Job, rows: Graded) -> Callable[[Model], float]:
    score, spec, n_grades = (
        job.method.score_rows,
        parse_graded(job.metric),
        len(job.data.candidates),
    )
    assert score is not None
    grades = job.comm.gather(rows.grades)

    def validate(model: Model) -> float:
        return graded_mean(job.comm.gather(score(model, rows)), grades, n_grades, spec)

    return validate


def _finish(job: Job, history: History) -> Ranker | Grader:
    """The model that was kept, in the hands of a person; on disk too, if there is a place."""
    assert history.model is not None
    notes = {
        **history.notes,
        **history.model.notes,
        "history": history.entries,
        "chosen": history.number,
        "is_chosen": job.is_chosen,
        "refit": history.phase == "refit",
        "seed": job.how.seed,
        "metric": job.metric,
        "data": job.data.fingerprint,
        "asked": asdict(job.settings),
    }
    model = history.model
    if job.method.finalize is not None:
        data = job.whole if history.phase == "refit" else job.data
        run = _make_run(job, replace(data, validation=None), None)
        model = job.method.finalize(model, data.split("train"), run)
    model = _collected(replace(model, notes=notes), job)
    ranker = _graded(job, model) if job.data.kind == "graded" else _ranker(job, model)
    if job.out is not None and job.comm.rank == 0:
        ranker.save(job.out)
        checkpoint.remove(checkpoint.path_of(job.out))
    job.comm.barrier()
    return ranker


def _with_candidates(model: Model, job: Job) -> Model:
    """The model with all candidates, where each rank has the vectors of some."""
    whole = {
        name: _all_rows(tensor, job, on_all=True)
        for name, tensor in model.tensors.items()  # in an order that all ranks have
        if name in job.method.per_candidate and len(tensor) < len(job.data.candidates)
    }
    tensors = {**model.tensors, **whole}
    if any(table.device != model.tensors[name].device for name, table in whole.items()):
        tensors = {name: tensor.cpu() for name, tensor in tensors.items()}  # where its file is
    return replace(model, tensors=tensors)


def _collected(model: Model, job: Job) -> Model:
    """The model in memory: on rank 0 with the rows of all queries, elsewhere with its own.

    Candidates that were divided are whole on all ranks, as files that no other process sees.
    """
    tensors = {name: tensor.cpu() for name, tensor in model.tensors.items()}
    for name, tensor in tensors.items():
        divided = len(tensor) < len(job.data.candidates)
        per_candidate = name in job.method.per_candidate and divided
        if name in job.method.per_query or per_candidate:
            whole = _all_rows(tensor, job, on_all=per_candidate)
            tensors[name] = whole if per_candidate or job.comm.rank == 0 else tensor
    return replace(model, tensors=tensors)


def _all_rows(own: Tensor, job: Job, *, on_all: bool) -> Tensor:
    """The rows of all processes, on rank 0; some at a time, on disk where memory is short."""
    comm = job.comm
    here = on_all or comm.rank == 0
    bring = comm.gather if on_all else comm.collect
    if comm.size == 1:
        return own
    lengths = comm.gather(torch.tensor([len(own)])).tolist()
    shape, row = (sum(lengths), *own.shape[1:]), own[:1].nbytes
    whole = own[:0]
    if here:
        in_memory = shape[0] * row <= job.how.memory_budget
        whole = own.new_empty(shape) if in_memory else in_file(shape, own.dtype)
    step = max(1, job.how.memory_budget // 4 // max(1, row * comm.size))
    for start in range(0, max(lengths), step):
        found = bring(own[start : start + step])
        sizes = [min(max(0, length - start), step) for length in lengths]
        parts = found.split(sizes) if here else []
        for rank, part in enumerate(parts):
            first = sum(lengths[:rank]) + start
            whole[first : first + len(part)] = part
    return whole


def _graded(job: Job, model: Model) -> Grader:
    """The model with scores that tell where to cut: of rows that it has not learnt, if it can."""
    unseen = job.data.validation is not None and not model.notes["refit"]
    where: SplitName = "validation" if unseen else "train"
    rows, score, comm = job.data.graded(where), job.method.score_rows, job.comm
    assert score is not None
    scores, grades = comm.gather(score(model, rows)), comm.gather(rows.grades)
    tensors = {"operating_scores": scores, "operating_grades": grades, FITTED: _learnt(job, model)}
    notes = {**model.notes, "operating_on": where}
    model = replace(model, tensors={**model.tensors, **tensors}, notes=notes)
    return Grader(model, job.data.candidates, job.data.columns)


def _learnt(job: Job, model: Model) -> Tensor:
    """What tells the rows that the model was fitted on from others; ascending."""
    names: tuple[SplitName, ...] = ("train", "validation") if model.notes["refit"] else ("train",)
    found = job.comm.gather(torch.cat([hashes(job.data.graded(name)) for name in names]))
    ascending: Tensor = found.unique()
    return ascending


def _ranker(job: Job, model: Model) -> Ranker:
    """The model with what the data says of its rows; texts only where it ranks by them."""
    data, written = job.data, {}
    if job.comm.size > 1:
        data = as_data(job.given) if job.comm.rank == 0 else _own_keys(data)
    if job.method.data_kind == "texts":
        written = {name: getattr(data, name) for name in ("tokenizer", "n_tokens")}
        written["texts"] = data.query_texts
    seen = replace(data, excluded=None).seen("test")
    return Ranker(model, data.queries, data.candidates, seen, data.excluded, **written)


def _own_keys(data: Dataset) -> Dataset:
    """Data of some of the queries, with the keys of these alone."""
    n, keys = data.split("train").n_queries, data.queries
    return replace(data, queries=Vocabulary(n, lambda: keys.keys.slice(data.first, n)), first=0)
