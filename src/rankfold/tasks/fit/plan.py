"""The plan of a fit: method, data, settings. Everything is checked before the work begins."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from rankfold import config, storage
from rankfold.data.build.graded import train_and_validation
from rankfold.data.folder import check_content
from rankfold.data.prepare import as_data
from rankfold.distributed.collectives import SINGLE_PROCESS, row_offset
from rankfold.distributed.connection import connect
from rankfold.errors import UserError
from rankfold.methods import METHODS, answers_with, find_method
from rankfold.metrics import METRICS, parse
from rankfold.metrics.graded import check_two_grades, parse_graded
from rankfold.tasks.fit.calibration_rows import SHARE, split_validation
from rankfold.tasks.fit.start import about, read_start
from rankfold.tasks.options import FitOptions
from rankfold.training import checkpoint
from rankfold.types import Comm, Dataset, Graded, Kind, Method, Start

DEFAULT_METRIC: Mapping[Kind, str] = {
    "interactions": "ndcg@10",
    "texts": "ndcg@10",
    "graded": "pauc@fpr=0.1",
}
_DEFAULT_PATIENCE: Mapping[Kind, int] = {
    "interactions": 3,
    "texts": 3,
    "graded": 10**9,  # the schedule runs to its end, then one epoch is kept
}
MIN_VALIDATION_ROWS = 125  # graded rows that select an epoch; with fewer, the last is kept
_MIN_NEGATIVES = 10  # of the lowest threshold, below the rate of the default metric


@dataclass(frozen=True, slots=True)
class FitPlan:
    """The plan of a fit. With several processes, each has the data of its own queries."""

    name: str
    method: Method
    settings: Any
    data: Dataset
    options: FitOptions
    comm: Comm
    source: Any  # the data argument: from it, the rows of all processes can be read
    is_chosen: bool = True  # keep the step of the best validation score, not the last one
    calibration: Graded | None = None  # validation rows that select nothing, not in ``data``
    start: Start | None = None  # None: from nothing

    @property
    def out(self) -> Path | None:
        return None if self.options.out is None else Path(self.options.out)

    @property
    def metric(self) -> str:
        return self.options.metric or DEFAULT_METRIC[self.data.kind]

    @property
    def patience(self) -> int:
        return self.options.patience or _DEFAULT_PATIENCE[self.data.kind]

    @property
    def calibration_share(self) -> float:
        """The share of graded validation rows to set apart; a refit learns from all of them."""
        if self.options.calibration_share is not None:
            return self.options.calibration_share
        return 0.0 if self.options.refit else SHARE

    @property
    def train_and_validation(self) -> Dataset:
        """The data with validation joined to train."""
        data, train = self.data, self.data.train
        if isinstance(train, Graded):
            every = data if self.comm.size == 1 else as_data(self.source)
            if self.comm.size > 1 and self.calibration is not None:
                every, _ = split_validation(every, self.calibration_share, SINGLE_PROCESS)
            return replace(data, train=train_and_validation(every, self.comm), validation=None)
        validation = data.split("validation")
        if data.given is not None:  # the queries of validation, with their histories
            own = (validation.counts() > 0)[data.given.query_of_pair().long()]
            validation = validation.union(data.given.keep(own))
        return replace(data, train=train.union(validation), validation=None)

    def identity(self) -> dict[str, Any]:
        """Values that a checkpoint must share with this fit to be resumed."""
        names = ("seed", "refit", "validation_queries")
        options = {name: getattr(self.options, name) for name in names}
        options |= {"metric": self.metric, "patience": self.patience}
        if self.data.kind == "graded":
            options["calibration_share"] = self.calibration_share
        if self.start is not None:
            options["from_model"] = about(self.start)
        settings = asdict(self.settings)
        return {"method": self.name, **settings, **options, "data": self.data.fingerprint}


def make_plan(name: str, data: Any, given: Mapping[str, Any]) -> FitPlan:
    """Check everything that can be checked before the work begins."""
    method = find_method(name)
    shared = {one.name for one in fields(FitOptions)}
    options = config.build(FitOptions, {key: given[key] for key in given if key in shared})
    own = {key: value for key, value in given.items() if key not in shared}
    if options.device == "cuda" and not torch.cuda.is_available():
        raise UserError("torch finds no CUDA device", hint="use --device cpu")
    comm = connect() if options.comm is None else options.comm
    if comm.size > 1 and not method.distributed:
        able = ", ".join(name for name, method in METHODS.items() if method.distributed)
        raise UserError(
            f"{name} cannot be fitted by {comm.size} processes",
            hint=f"start it without torchrun; methods for several processes: {able}",
        )
    settings = config.build(method.config, own)
    plan = FitPlan(name, method, settings, as_data(data, comm), options, comm, data)
    _check_ranks_agree(plan)
    plan = replace(plan, data=method.read(plan.data, settings, comm))
    _check_data(plan)
    plan = _started(plan)
    _check_metric(plan)
    plan = _set_apart(plan)
    plan = replace(plan, options=replace(options, metric=_select_metric(plan)))
    if plan.out is not None and comm.rank == 0:
        storage.check_writable(plan.out, "model")
        storage.check_writable(checkpoint.path_of(plan.out), "checkpoint")
    elif plan.out is None and options.resume:
        raise UserError("resume needs the folder of the model", hint="give out=")
    return plan


def _started(plan: FitPlan) -> FitPlan:
    """The plan with the model that it starts from, and the settings that suit it."""
    if plan.options.from_model is None:
        return plan
    if plan.method.start is None:
        able = ", ".join(name for name, method in METHODS.items() if method.start is not None)
        raise UserError(
            f"a fit of {plan.name} cannot start from a model",
            hint=f"leave --from out; methods that can: {able}",
        )
    if plan.comm.size > 1:
        raise UserError(
            f"a fit that starts from a model is done by one process, got {plan.comm.size}",
            hint="start it without torchrun",
        )
    start = read_start(plan.options.from_model, plan.name, plan.data)
    return replace(plan, start=start, settings=plan.method.start(plan.settings, start))


def _check_ranks_agree(plan: FitPlan) -> None:
    """A UserError where the processes were started with different values."""
    names = ("device", "resume", "metric", "memory_budget", "candidate_memory")
    options = {name: getattr(plan.options, name) for name in names}
    options["out"] = None if plan.out is None else str(plan.out.absolute())
    plan.comm.agree({**storage.versions(), **plan.identity(), **options})


def _check_data(plan: FitPlan) -> None:
    name, kind, takes = plan.name, plan.data.kind, plan.method.data_kind
    words = {"graded": "graded rows"}
    if "graded" in (kind, takes) and kind != takes:
        raise UserError(
            f"{name} takes {words.get(takes, takes)}, but the data is {words.get(kind, kind)}",
            hint="`rankfold methods` lists the kind of data each method takes",
        )
    if takes == "texts" and plan.data.query_texts is None:
        raise UserError(
            f"{name} ranks by the texts of queries, but the data has no texts",
            hint="prepare it with --format texts, --query-texts, or a --source that has texts",
        )
    if takes == "interactions" and plan.data.given is not None:
        able = [other for other, method in METHODS.items() if "histories" in method.answers]
        if "histories" not in answers_with(name, asdict(plan.settings)):
            raise UserError(
                f"{name} cannot rank held-out queries by their histories",
                hint=f"prepare without --fold-in, or fit one of {', '.join(able)}",
            )
    check_content(plan.data)


def _check_metric(plan: FitPlan) -> None:
    if plan.data.kind == "graded":
        parse_graded(plan.metric)
        if plan.data.validation is not None:
            hint = "prepare the data with another --split; 0.9,0,0.1 has no validation"
            grades = plan.comm.gather(plan.data.graded("validation").grades)
            check_two_grades(grades, "rows of the validation split", hint)
    elif (metric := METRICS.get(parse(plan.metric).name)) is None or metric.reads != "truth":
        raise UserError(f"cannot validate by {plan.metric}", hint="use ndcg@10, for example")


def _select_metric(plan: FitPlan) -> str:
    """The given metric or the default; for a method with a target rate, pauc up to twice that.

    The range is wider where validation has few negatives: the highest few of them say little.
    """
    target = getattr(plan.settings, "fpr", None)
    if plan.options.metric is not None or target is None or plan.data.validation is None:
        return plan.metric
    grades = plan.comm.gather(plan.data.graded("validation").grades)
    negatives = int((grades == grades[grades >= 0].amin()).sum())
    widest = parse_graded(plan.metric).fpr or 1.0
    rate = max(2 * target, min(widest, _MIN_NEGATIVES / negatives))
    return f"pauc@fpr={rate:.3g}" if rate < 1 else "auc"


def _set_apart(plan: FitPlan) -> FitPlan:
    """The plan with its calibration rows apart, and whether the others select the step to keep.

    Only trees and networks on images select, and not by few rows: an epoch of a short schedule
    would be chosen by chance, most likely one before its end. Where nothing is selected, all rows
    can be used to find cuts, unless a share is given. An explicit patience forces selection.
    """
    if plan.data.kind != "graded" or plan.data.validation is None:
        return plan
    grades = plan.data.graded("validation").grades
    known = row_offset(int((grades >= 0).sum()), plan.comm)[1]
    enough = (1 - plan.calibration_share) * known >= MIN_VALIDATION_ROWS
    selects = plan.method.self_tuning or plan.data.graded("train").images is not None
    is_chosen = plan.options.patience is not None or (enough and selects)
    plan = replace(plan, is_chosen=is_chosen)
    learns_nothing = not (is_chosen or plan.method.self_tuning or plan.method.selects)
    if learns_nothing and plan.options.calibration_share is None:
        return plan
    data, apart = split_validation(plan.data, plan.calibration_share, plan.comm)
    return replace(plan, data=data, calibration=apart)
