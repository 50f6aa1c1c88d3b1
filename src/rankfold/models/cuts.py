"""The cuts between grades, from kept rows that the model was not fitted on."""

from collections.abc import Sequence
from math import ceil

import torch
from torch import Tensor

from rankfold.errors import UserError, pluralize
from rankfold.metrics.binomial import most_allowed, rows_needed
from rankfold.metrics.graded import check_fpr
from rankfold.metrics.roc import cut, exact
from rankfold.types import Model

OPERATING = ("operating_scores", "operating_grades")  # tensors of the rows that cuts come from
CALIBRATION = "calibration"  # where such rows come from: validation rows that selected nothing
CUTS_OF_TRAIN = (
    "the cuts between grades come from rows that the model was fitted on: "
    "the false-positive rate on new rows will be higher"
)
_MAX_WRITTEN_OUT = 1e15  # larger numbers are written with an exponent
_ROUNDING = 1e-6  # of the largest score: more than the rounding error of single precision


def operating_rows(model: Model) -> tuple[Tensor, Tensor]:
    """Scores and grades of the rows that the fit kept to find cuts."""
    if OPERATING[0] not in model.tensors:
        raise UserError(
            "the model has no rows to find cuts from",
            hint="fit it again: a fit keeps the scores of its validation rows",
        )
    scores, grades = (model.tensors[name] for name in OPERATING)
    return scores[grades >= 0].double(), grades[grades >= 0]


def find_cuts(
    model: Model, names: Sequence[str], rate: float, confidence: float | None = None
) -> Tensor:
    """The score that a row must exceed to get a grade above k; [G - 1], non-decreasing.

    So few kept rows of grade <= k exceed cut k that the mean share among all rows of grade <= k is
    at most ``rate``, over samples of kept rows: floor(rate (n + 1)) - 1 of n, none if that is below
    0. With a confidence, the share itself is at most ``rate`` with that probability, for each k by
    itself; a UserError if there are too few rows for that. The cut is halfway to the next score of
    a kept row. A cut below the previous one is raised to it, so that fewer rows pass.
    Without a kept row of grade <= k, cut k is cut k + 1, and the last one is inf.
    """
    check_fpr(rate)
    if confidence is not None:
        check_promise(model, names, rate, confidence)
    scores, grades = operating_rows(model)
    own = scores.new_full((len(names),), torch.inf)
    for k in reversed(range(len(names) - 1)):
        negatives = scores[grades <= k]
        n = len(negatives)
        allowed = (
            _mean_allowed(n, rate) if confidence is None else most_allowed(n, rate, confidence)
        )
        own[k] = _halfway(cut(negatives, allowed), scores) if n else own[k + 1]
    return own[:-1].cummax(dim=0).values


def _mean_allowed(n: int, rate: float) -> int:
    """How many of n negatives may exceed a cut so that its true rate is ``rate`` on average.

    The share of all negatives above the (m + 1)-th largest of n is (m + 1) / (n + 1) on average.
    """
    share = exact(rate)
    return max(0, (n + 1) * share.numerator // share.denominator - 1)


def _halfway(lowest: Tensor, scores: Tensor) -> Tensor:
    """Halfway from a score to the next one above it.

    Rounding depends on the batch, the threads and the device. A row equal to the one at the cut
    must not pass because of it: where scores have few distinct values, many rows are equal to it.
    """
    higher = scores[scores > lowest]
    if len(higher) == 0:
        return lowest + _ROUNDING * scores.abs().max()
    return lowest + (higher.min() - lowest) / 2


def rows_below(model: Model, names: Sequence[str]) -> dict[str, int]:
    """The number of kept rows below each grade but the lowest."""
    _, grades = operating_rows(model)
    return {name: int((grades < k).sum()) for k, name in enumerate(names) if k > 0}


# ---------------------------------------------------------------------------------- the promise


def took_part(model: Model) -> str | None:
    """Why the kept rows are not like new ones to the model; None if they are."""
    notes = model.notes
    source = notes.get("operating_on")
    if source == CALIBRATION:
        return None
    if source == "train":
        return "the model was fitted on the rows that its cuts come from"
    if notes.get("is_chosen") is False and "trial" not in notes:
        return None  # the last step was kept, whatever the validation rows
    return "the rows that the cuts come from also selected the model"


def check_promise(model: Model, names: Sequence[str], rate: float, confidence: float) -> None:
    """A UserError unless the kept rows can promise a false-positive rate."""
    if not 0.5 <= confidence < 1:  # false for NaN
        raise UserError(
            f"`confidence` must be at least 0.5 and below 1, got {confidence:g}", hint="try .95"
        )
    what = f"a false-positive rate of {rate:g} cannot be promised with confidence {confidence:g}"
    rows = rows_below(model, names)
    if (why := took_part(model)) is not None:
        hint = "fit it on data with validation rows, without --refit and --calibration-share 0"
        raise UserError(f"{what}: {why}", hint=hint)
    needed = rows_needed(rate, confidence)
    if scarce := [f"{n:,} below {name}" for name, n in rows.items() if n < needed]:
        raise UserError(
            f"{what}: it needs {needed:,} kept rows below each grade, and there are "
            f"{', '.join(scarce)}",
            hint="prepare more validation rows (where they choose, a half is kept), raise --fpr, "
            "or leave --confidence out for a rate that holds on average",
        )


# ---------------------------------------------------------------------------------- cautions


def scarce(model: Model, names: Sequence[str], fpr: float) -> dict[str, int]:
    """Grades with fewer than 1 / ``fpr`` kept rows below them, and how many there are.

    None of these rows may pass: the cut is above all of them.
    """
    rate = exact(check_fpr(fpr))
    return {name: n for name, n in rows_below(model, names).items() if n * rate < 1}


def cautions(
    model: Model, names: Sequence[str], fpr: float, confidence: float | None = None
) -> list[str]:
    """Why the false-positive rate on new rows may differ from ``fpr``, for people."""
    lines, few = [], {} if confidence is not None else scarce(model, names, fpr)
    if model.notes.get("operating_on") == "train":
        lines.append(CUTS_OF_TRAIN)
    if none := [name for name, n in few.items() if n == 0]:
        lines.append(
            f"no row below {none[-1]} was kept to find a cut: "
            f"{' and '.join(none)} begin{'s' if len(none) == 1 else ''} where the next grade "
            "does; the last grade is never given"
        )
    if counts := ", ".join(f"{n:,} below {name}" for name, n in few.items() if n > 0):
        needed = 1 / (exact(fpr) or fpr)
        enough = f"{ceil(needed):,}" if needed < _MAX_WRITTEN_OUT else f"{1 / fpr:.0e}"
        lines.append(
            f"too few rows were kept for a false-positive rate of {fpr:g}: it needs {enough} "
            f"below a grade, and there are {counts}; the rate on new rows may differ"
        )
    fitted = model.config.get("fpr", fpr)
    if fitted != fpr:
        lines.append(f"the model was fitted for a false-positive rate of {fitted:g}")
    return lines


def promise(model: Model, names: Sequence[str], fpr: float, confidence: float | None) -> str:
    """What a false-positive rate means for new rows, for people."""
    rows = ", ".join(
        f"{pluralize(n, 'row')} below {name}" for name, n in rows_below(model, names).items()
    )
    if confidence is None:
        return (
            f"false-positive rate {fpr:g}: on average over models, if new rows are like the "
            f"{rows} that were kept; --confidence .95 promises it for this model"
        )
    return (
        f"false-positive rate {fpr:g}: at most, with confidence {confidence:g} at each grade by "
        f"itself, if new rows are like the {rows} that were kept"
    )
