"""How well a model grades a held-out split, with intervals."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import polars as pl
import torch
from torch import Tensor

from rankfold.data.build.column_profile import describe
from rankfold.data.build.graded import gather_rows
from rankfold.data.build.row_hashes import hashes
from rankfold.data.folder import check_content
from rankfold.distributed.collectives import SINGLE_PROCESS, count_over_ranks
from rankfold.errors import UserError
from rankfold.metrics.binomial import interval
from rankfold.metrics.calibration import calibration
from rankfold.metrics.costs import Costs, cost_curve, expected_cost, parse_costs
from rankfold.metrics.graded import (
    GradedSpec,
    check_two_grades,
    parse_graded,
    passed_by_grade,
    values_of,
)
from rankfold.models.cuts import CALIBRATION, OPERATING
from rankfold.models.grader import FITTED, Grader, names_of, new_values
from rankfold.notebook import silent
from rankfold.tasks.options import GRADED_DEFAULTS, Certainty
from rankfold.tasks.significance import graded_draws, interval_of
from rankfold.types import Columns, Comm, Dataset, Graded, Progress, SplitName, Tabular

_DEFAULT_CERTAINTY = Certainty()
_OPTIONAL = (
    *("operating", "calibration", "calibration_errors", "cost_curves", "costs", "importance"),
    *("drift", "cautions"),
)
_ERROR_BINS = 10  # of the calibration error


Ends = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Operating:
    """The rates of the model's own cuts on the scored rows, with exact binomial intervals."""

    fpr: float  # the wanted rate
    confidence: float | None  # that it was promised with; None: it should hold on average
    false_positives: Sequence[float | None]  # at each threshold; None without such rows
    true_positives: Sequence[float | None]
    false_positive_intervals: Sequence[Ends | None]
    true_positive_intervals: Sequence[Ends | None]


@dataclass(frozen=True, slots=True)
class GradedEvaluation(Tabular):
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
    calibration_errors: Sequence[float] = ()  # of probabilities, per threshold
    cost_curves: Sequence[Sequence[Mapping[str, float]]] = ()  # per threshold, with calibration
    costs: Mapping[str, Any] = field(default_factory=dict)  # if costs of errors are given
    importance: Mapping[str, Any] = field(default_factory=dict)  # of columns, and by what
    drift: Sequence[Mapping[str, Any]] = ()  # each column, compared with the fitted rows
    cautions: Sequence[str] = ()  # for people

    def __getitem__(self, metric: str) -> float:
        return self.metrics[str(parse_graded(metric))]

    def to_polars(self) -> pl.DataFrame:
        """A row per metric: metric, value, low, high, and the value at each threshold."""
        ends = [self.intervals.get(name) or (None, None) for name in self.metrics]
        low, high = zip(*ends, strict=True)
        columns: dict[str, Sequence[Any]] = {"metric": [*self.metrics]}
        columns |= {"value": [*self.metrics.values()], "low": low, "high": high}
        for place, name in enumerate(self.grades[:-1]):
            each = [self.thresholds.get(metric) for metric in self.metrics]
            columns[f"> {name}"] = [None if one is None else one[place] for one in each]
        numbers = {name: pl.Float64 for name in columns if name != "metric"}
        return pl.DataFrame(columns, schema_overrides=numbers)

    def to_json(self) -> dict[str, Any]:
        document = asdict(self)
        empty = [name for name in _OPTIONAL if not document[name]]
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
    costs = None if certainty.costs is None else parse_costs(certainty.costs)
    progress("scoring", 0.0)
    scores = comm.gather(grader.score(rows))
    values = values_of(passed_by_grade(scores, grades, n_grades), specs)
    bins, above = certainty.calibration, _probabilities_above(grader, scores)
    shifts = grader.shifts(gather_rows(replace(rows, images=None), comm))
    learnt, why = _trained_on(grader, data, split, rows, comm)
    named = dict(zip(map(str, specs), values, strict=True))
    return GradedEvaluation(
        split=split,
        queries=len(grades),
        without_grade=count_over_ranks((~known).sum(), comm),
        trained_on=learnt,
        grades=grader.names,
        metrics={name: float(value.nanmean()) for name, value in named.items()},
        intervals=_intervals(scores, grades, n_grades, specs, certainty, progress),
        thresholds={str(spec): _plain(named[str(spec)]) for spec in specs if spec.name != "order"},
        operating=_operate(grader, scores, grades, specs, certainty.confidence),
        operating_on=str(grader.model.notes.get("operating_on", "")),
        calibration=[_curve(scores, grades > k, bins, p) for k, p in enumerate(above) if bins],
        calibration_errors=[
            calibration(scores, grades > k, _ERROR_BINS, p).error
            for k, p in enumerate(above)
            if p is not None
        ],
        cost_curves=[
            _cost_curve(p, grades > k) for k, p in enumerate(above) if bins and p is not None
        ],
        costs={} if costs is None else _expected_costs(above, grades, costs),
        importance=grader.model.notes.get("importance", {}),
        drift=[shift.to_json() for shift in shifts],
        cautions=_cautions(grader, data, split, comm) + describe(shifts) + why,
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
    n = count_over_ranks(len(given), comm)
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
    same = data.fingerprint and notes.get("data") == data.fingerprint
    some = notes.get("refit") and split == "validation" and notes.get("operating_on") == CALIBRATION
    if same and not some:
        learnt = len(rows) if notes.get("refit") and split == "validation" else 0
        return count_over_ranks(learnt, comm), []
    unknown = "whether the model was fitted on some of these rows is unknown: "
    if fitted is None:
        return None, [f"{unknown}an older version wrote it; fit it again to find out"]
    n = count_over_ranks(torch.isin(hashes(rows), fitted).sum(), comm)
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


def _operate(
    grader: Grader,
    scores: Tensor,
    grades: Tensor,
    specs: Sequence[GradedSpec],
    confidence: float,
) -> list[Operating]:
    """The rates at the model's cuts for each rate among the metrics: on average, and promised.

    There are none if the model has no cuts, and no promised ones where it cannot promise.
    """
    if OPERATING[0] not in grader.model.tensors:
        return []
    entries = []
    for fpr in dict.fromkeys(spec.fpr for spec in specs if spec.fpr is not None):
        cuts: dict[float | None, Tensor] = {None: grader.cuts(fpr)}
        with suppress(UserError):
            cuts[confidence] = grader.cuts(fpr, confidence)
        for promised, own in cuts.items():
            sides = _rates_at(own, scores, grades, confidence)
            entries.append(Operating(fpr, promised, *sides))
    return entries


def _rates_at(cuts: Tensor, scores: Tensor, grades: Tensor, confidence: float) -> list[Any]:
    """The false- and the true-positive rates of each cut, then their intervals."""
    thresholds = torch.arange(len(cuts))[:, None]
    passes = torch.searchsorted(cuts, scores.double().contiguous()) > thresholds
    positive = grades > thresholds
    rates, ends = [], []
    for side in (~positive, positive):
        counts = (passes & side).sum(dim=1).tolist()
        pairs = list(zip(counts, side.sum(dim=1).tolist(), strict=True))
        rates.append([count / n if n else None for count, n in pairs])
        ends.append([interval(count, n, confidence) for count, n in pairs])
    return [*rates, *ends]


def _probabilities_above(grader: Grader, scores: Tensor) -> list[Tensor | None]:
    """The probability of a grade above each threshold; None for a model without kept rows."""
    if not grader.calibrates:
        return [None] * (len(grader.grades) - 1)
    return list((1 - grader.probabilities(scores).cumsum(dim=1))[:, :-1].T)


def _curve(
    scores: Tensor, positive: Tensor, bins: int, probabilities: Tensor | None
) -> list[dict[str, float]]:
    curve = calibration(scores, positive, bins, probabilities)
    columns = {"score": curve.scores, "share": curve.shares, "rows": curve.counts}
    if curve.probabilities is not None:
        columns["probability"] = curve.probabilities
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _expected_costs(above: Sequence[Tensor | None], grades: Tensor, costs: Costs) -> dict[str, Any]:
    """The cost per row at each threshold."""
    known = [(p, grades > k) for k, p in enumerate(above) if p is not None]
    if not known:
        raise UserError(
            "the model has no probabilities, which costs are weighed by",
            hint="fit it again: a fit keeps the scores of its validation rows",
        )
    return {
        **costs._asdict(),
        "probability": costs.cut,
        "thresholds": [expected_cost(p, positive, costs)._asdict() for p, positive in known],
    }


def _cost_curve(probabilities: Tensor, positive: Tensor) -> list[dict[str, float]]:
    """The cost per row by the share of a miss in the costs of both errors."""
    curve = cost_curve(probabilities, positive)
    return [{"miss_share": share, **cost._asdict()} for share, cost in curve]


def _plain(values: Tensor) -> list[float | None]:
    """For JSON, which has no NaN."""
    return [None if value != value else value for value in values.double().tolist()]
