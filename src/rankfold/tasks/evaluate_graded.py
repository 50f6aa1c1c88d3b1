"""How well a model grades a held-out split, with intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from rankfold.data.build.graded import hashes
from rankfold.data.folder import check_content
from rankfold.distributed.collectives import SINGLE_PROCESS
from rankfold.errors import UserError
from rankfold.metrics.calibration import calibration
from rankfold.metrics.graded import (
    GradedSpec,
    check_two_grades,
    parse_graded,
    passed_by_grade,
    values_of,
)
from rankfold.models.grader import FITTED, OPERATING, Grader, names_of, new_values
from rankfold.tasks.options import GRADED_DEFAULTS, Certainty
from rankfold.tasks.statistics import graded_draws, interval_of
from rankfold.types import Columns, Comm, Dataset, Graded, Progress, SplitName, silent

_DEFAULT_CERTAINTY = Certainty()


@dataclass(frozen=True, slots=True)
class Operating:
    """The rates of the model's own cuts on the scored rows."""

    fpr: float  # the wanted rate
    false_positives: Sequence[float | None]  # at each threshold; None without such rows
    true_positives: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class GradedEvaluation:
    """Means over thresholds, their intervals, and the value of each threshold."""

    split: str
    queries: int  # rows that were scored
    without_grade: int  # rows left out: their grade is unknown
    trained_on: int | None  # rows that the model was fitted on: values are too high; None: unknown
    grades: Sequence[str]  # names; grades up to the k-th are below threshold k
    metrics: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float] | None]
    """Empty without a bootstrap; None if fewer than two samples had two grades."""
    thresholds: Mapping[str, Sequence[float | None]]  # None if all rows are on one side
    operating: Sequence[Operating] = ()  # for each rate among the metrics
    operating_on: str = ""  # the rows that the cuts come from: validation or train
    calibration: Sequence[Sequence[Mapping[str, float]]] = ()  # per threshold; empty by default
    cautions: Sequence[str] = ()  # for people

    def __getitem__(self, metric: str) -> float:
        return self.metrics[str(parse_graded(metric))]

    def to_json(self) -> dict[str, Any]:
        document = asdict(self)
        empty = [name for name in ("operating", "calibration", "cautions") if not document[name]]
        empty += ["operating_on"] if "operating" in empty else []
        return {name: value for name, value in document.items() if name not in empty}


def evaluate_graded(
    grader: Grader,
    data: Dataset,
    *,
    split: SplitName = "test",
    metrics: Sequence[str] | str = GRADED_DEFAULTS,
    certainty: Certainty = _DEFAULT_CERTAINTY,
    progress: Progress = silent,
    comm: Comm = SINGLE_PROCESS,
) -> GradedEvaluation:
    """Score the rows of a split and compare the scores with their grades.

    Data other than the model's own is matched by the names of grades, columns and levels. Intervals
    are percentiles of a bootstrap: rows are drawn with replacement, as many as there are; the model
    stays the same. Each process scores the rows of its data, and all return the values of all.
    """
    specs = [parse_graded(name) for name in ([metrics] if isinstance(metrics, str) else metrics)]
    if not specs:
        raise UserError("`metrics` is empty", hint=f"default: {','.join(GRADED_DEFAULTS)}")
    given = data.graded(split)
    check_content(data)
    rows = matched(grader, data, given)
    known = rows.grades >= 0
    rows = rows.select(known.nonzero().flatten())
    grades, n_grades = comm.gather(rows.grades), len(grader.grades)
    check_two_grades(grades, f"rows of the {split} split", "name another split with two grades")
    progress("scoring", 0.0)
    scores = comm.gather(grader.score(rows))
    values = values_of(passed_by_grade(scores, grades, n_grades), specs)
    bins = certainty.calibration
    learnt, why = _trained_on(grader, data, split, rows, comm)
    named = dict(zip(map(str, specs), values, strict=True))
    return GradedEvaluation(
        split=split,
        queries=len(grades),
        without_grade=int(comm.sum((~known).sum())),
        trained_on=learnt,
        grades=grader.names,
        metrics={name: float(value.nanmean()) for name, value in named.items()},
        intervals=_intervals(scores, grades, n_grades, specs, certainty, progress),
        thresholds={str(spec): _plain(named[str(spec)]) for spec in specs if spec.name != "order"},
        operating=[_operate(grader, scores, grades, fpr) for fpr in _rates(grader, specs)],
        operating_on=str(grader.model.notes.get("operating_on", "")),
        calibration=[_curve(scores, grades > k, bins) for k in range(n_grades - 1) if bins],
        cautions=_cautions(grader, data, split, comm) + why,
    )


# ---------------------------------------------------------------------------------- matching


def matched(grader: Grader, data: Dataset, rows: Graded) -> Graded:
    """Rows of data with the columns, levels and grades of the model."""
    rows = _regraded(grader, data, rows)
    if data.columns == grader.columns:
        return rows
    if data.columns is None or grader.columns is None:
        theirs, ours = (
            "images alone" if c is None else "columns" for c in (data.columns, grader.columns)
        )
        raise UserError(
            f"the data has {theirs}, but the model was fitted on {ours}",
            hint="check that the model was fitted on this data",
        )
    _check_columns(data, data.columns, grader.columns)
    return _recolumned(rows, data.columns, grader.columns)


def _regraded(grader: Grader, data: Dataset, rows: Graded) -> Graded:
    ours, theirs = grader.names, names_of(data.candidates)
    if ours == theirs:
        return rows
    unknown = [name for name in theirs if name not in ours]
    if unknown:
        raise UserError(
            f"the model does not know the grade {unknown[0]!r}",
            hint=f"its grades are {', '.join(ours)}, the lowest first",
        )
    places = torch.tensor([*(ours.index(name) for name in theirs), -1])  # -1 stays -1
    return Graded(rows.numbers, rows.categories, rows.images, places[rows.grades])


def _check_columns(data: Dataset, theirs: Columns, ours: Columns) -> None:
    wanted, there = (*ours.numbers, *ours.levels), (*theirs.numbers, *theirs.levels)
    missing = [name for name in ours.numbers if name not in theirs.numbers]
    missing += [name for name in ours.levels if name not in theirs.levels]
    if missing:
        kind = "of another kind" if missing[0] in there else "not in the data"
        notes = [*data.summary.get("doubtful", []), *data.summary.get("left_out", [])]
        why = next((entry["why"] for entry in notes if entry["column"] == missing[0]), None)
        raise UserError(
            f"the model was fitted with a column {missing[0]!r}, which is {kind}",
            hint=f"it takes {', '.join(wanted)}" if why is None else f"prepare says: {why}",
        )


def _recolumned(rows: Graded, theirs: Columns, ours: Columns) -> Graded:
    """The rows with the columns of the model, which are all there."""
    numbers = rows.numbers[:, [theirs.numbers.index(name) for name in ours.numbers]]
    columns = [
        _relevelled(rows.categories[:, list(theirs.levels).index(name)], theirs.levels[name], own)
        for name, own in ours.levels.items()
    ]
    categories = torch.stack(columns, dim=1) if columns else rows.categories[:, :0]
    return Graded(numbers, categories, rows.images, rows.grades)


def _relevelled(column: Tensor, theirs: Sequence[str], ours: Sequence[str]) -> Tensor:
    """A column of categories with the places of our levels, -1 where we do not have the level."""
    place = {name: number for number, name in enumerate(ours)}
    places = torch.tensor([*(place.get(name, -1) for name in theirs), -1], dtype=column.dtype)
    return places[column.long()]


def _lost(data: Dataset, split: SplitName) -> dict[str, int]:
    """By column, how many values of a split are not in train; the data keeps them as missing."""
    return dict(data.summary.get("unknown", {}).get(split, {}))


def _cautions(grader: Grader, data: Dataset, split: SplitName, comm: Comm) -> list[str]:
    """The columns with values that are new to the model, as ``predict`` reports them.

    The data keeps values that its train rows lack as missing: the model cannot know them either.
    """
    ours, theirs, given = grader.columns, data.columns, data.graded(split)
    if ours is None or theirs is None:
        return []
    lost = _lost(data, split)
    rows = given if theirs == ours else _recolumned(given, theirs, ours)
    unknown = {}
    for place, name in enumerate(ours.levels):
        there = given.categories[:, list(theirs.levels).index(name)] >= 0
        new = comm.sum((there & (rows.categories[:, place] < 0)).sum())
        unknown[name] = int(new) + lost.get(name, 0)
    n = int(comm.sum(torch.tensor(len(given))))
    surely = not lost or theirs.levels == ours.levels
    to = "the model" if surely else "the model, or to the train rows of the data"
    return new_values({name: new for name, new in unknown.items() if new}, n, to)


def _trained_on(
    grader: Grader, data: Dataset, split: SplitName, rows: Graded, comm: Comm
) -> tuple[int | None, list[str]]:
    """How many of the rows the model was fitted on, and why that is unknown; there should be none.

    For the data of the fit, the split decides. Rows of other data are compared by their hashes:
    all that the model sees of them, and the grade. This finds them in another split of the same
    table, except rows with a level that the train rows of that split lack. An older model has no
    hashes.
    """
    notes, fitted = grader.model.notes, grader.model.tensors.get(FITTED)
    if data.fingerprint and notes.get("data") == data.fingerprint:
        learnt = len(rows) if notes.get("refit") and split == "validation" else 0
        return int(comm.sum(torch.tensor(learnt))), []
    unknown = "whether the model was fitted on some of these rows is unknown: "
    if fitted is None:
        return None, [f"{unknown}an older version wrote it; fit it again to find out"]
    n = int(comm.sum(torch.isin(hashes(rows), fitted).sum()))
    columns = grader.columns.levels if grader.columns is not None else {}
    lost = [column for column in _lost(data, split) if column in columns]
    if not lost:
        return n, []
    why = f"train lacks values of {', '.join(lost)} that these rows have"
    return None, [f"{unknown}{f'{n:,} rows are equal to fitted ones, but ' if n else ''}{why}"]


# ---------------------------------------------------------------------------------- intervals, cuts


def _intervals(
    scores: Tensor,
    grades: Tensor,
    n_grades: int,
    specs: Sequence[GradedSpec],
    certainty: Certainty,
    progress: Progress,
) -> dict[str, tuple[float, float] | None]:
    """The interval of each metric's mean over thresholds, by a bootstrap over the rows."""
    if certainty.bootstrap == 0:
        return {}
    scores, places = scores.sort(descending=True)
    how: dict[str, Any] = {"samples": certainty.bootstrap, "seed": certainty.seed}
    draws = graded_draws([[scores]], grades[places], n_grades, specs, **how, progress=progress)[0]
    intervals = [interval_of(means, certainty.confidence) for means in draws]
    return dict(zip(map(str, specs), intervals, strict=True))


def _rates(grader: Grader, specs: Sequence[GradedSpec]) -> list[float]:
    """The false-positive rates of the metrics, if the model has cuts."""
    if OPERATING[0] not in grader.model.tensors:
        return []
    return list(dict.fromkeys(spec.fpr for spec in specs if spec.fpr is not None))


def _operate(grader: Grader, scores: Tensor, grades: Tensor, fpr: float) -> Operating:
    thresholds = torch.arange(len(grader.grades) - 1)[:, None]
    passes, positive = grader.grade(scores, fpr) > thresholds, grades > thresholds
    sides = (~positive, positive)
    rates = [(passes & side).sum(dim=1).double() / side.sum(dim=1) for side in sides]
    return Operating(fpr, *map(_plain, rates))


def _curve(scores: Tensor, positive: Tensor, bins: int) -> list[dict[str, float]]:
    columns = (column.tolist() for column in calibration(scores, positive, bins))
    return [{"score": a, "share": b, "rows": c} for a, b, c in zip(*columns, strict=True)]


def _plain(values: Tensor) -> list[float | None]:
    """For JSON, which has no NaN."""
    return [None if value != value else value for value in values.double().tolist()]
