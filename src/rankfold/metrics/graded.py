"""Metrics of rows with ordered grades, from their scores. To add one: a function, a line, a test.

A threshold k = 0 .. G - 2 divides the rows: positives have a grade above k, the others are
negatives. A metric has a value per threshold, and the mean over the thresholds with rows on both
sides is reported; ``order`` has one value for all grades.
"""

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import NamedTuple

import torch
from torch import Tensor

from rankfold.errors import UserError
from rankfold.metrics.roc import Curve, passing, pauc, pauc_raw, run_ends, tpr, tpr_closest


class Pairs(NamedTuple):
    """Pairs of a row of one grade and a row of another, counted by their grades.

    Leading dimensions are other sets of rows.
    """

    right: Tensor  # [..., G, G] float64: grade b scores above grade a; equal scores count half
    total: Tensor  # [..., G, G] float64


def count_pairs(passed: Tensor) -> Pairs:
    """The pairs in ``passed`` [G, ..., J + 1], how many rows of each grade pass each cut.

    Above a row of grade a are the rows of grade b that pass its score, and half of those with an
    equal score. O(J G^2), since the scores are sorted.
    """
    points = passed.double()
    own = points.diff(dim=-1)
    above = torch.add(points[..., :-1], own, alpha=0.5)
    right = own.movedim(0, -2) @ above.movedim(0, -1)
    n = points[..., -1].movedim(0, -1)
    return Pairs(right, n[..., :, None] * n[..., None, :])


def auc(pairs: Pairs) -> Tensor:
    """The share of pairs of a positive and a negative in which the positive scores higher.

    Equal scores count half. Returns [G - 1, ...], one per threshold, NaN if a side is empty.
    """
    return torch.stack(
        [
            _sum(pairs.right[..., : k + 1, k + 1 :]) / _sum(pairs.total[..., : k + 1, k + 1 :])
            for k in range(pairs.right.shape[-1] - 1)
        ]
    )


def order(pairs: Pairs) -> Tensor:
    """The share of pairs of rows with different grades in which the higher grade scores higher.

    Equal scores count half; with two grades it is ``auc``. Returns [1, ...], NaN if all rows
    have the same grade.
    """
    return (_sum(pairs.right.triu(1)) / _sum(pairs.total.triu(1)))[None]


def _sum(counts: Tensor) -> Tensor:
    return counts.sum(dim=(-2, -1))


_RATE_METRICS: dict[str, Callable[[Curve, float], Tensor]] = {
    "tpr": tpr,
    "tpr-closest": tpr_closest,
    "pauc": pauc,
    "pauc-raw": pauc_raw,
}

_PAIR_METRICS: dict[str, Callable[[Pairs], Tensor]] = {"auc": auc, "order": order}

GRADED_METRICS = (*_RATE_METRICS, *_PAIR_METRICS)


class GradedSpec(NamedTuple):
    """A metric as users write it: ``tpr@fpr=.01``, or ``auc``, which needs no rate."""

    name: str  # one of GRADED_METRICS
    fpr: float | None  # above 0 and below 1; None for a metric without a rate

    def __str__(self) -> str:
        rate = repr(self.fpr).removeprefix("0")  # .01
        return self.name if self.fpr is None else f"{self.name}@fpr={rate}"


def parse_graded(text: str) -> GradedSpec:
    """``"tpr@fpr=.01" -> GradedSpec("tpr", 0.01)``; anything else is a UserError."""
    name, at, rate = text.strip().partition("@")
    if name not in GRADED_METRICS:
        raise UserError(f"graded rows have no metric {name!r}", hint=_hint(name))
    if name not in _RATE_METRICS:
        if at:
            raise UserError(
                f"metric {name!r} takes no rate, got {rate!r}",
                hint=f"write {name}, or pauc@fpr=.1 for a part of the curve",
            )
        return GradedSpec(name, None)
    if not at:
        raise UserError(
            f"metric {name!r} needs a false-positive rate", hint=f"write {name}@fpr=.01"
        )
    return GradedSpec(name, _rate(name, rate))


def check_fpr(fpr: float) -> float:
    """The rate; a UserError if it is out of range."""
    if not 0 < fpr < 1:  # false for NaN
        raise UserError(
            f"a false-positive rate must be above 0 and below 1, got {fpr:g}", hint="try .01"
        )
    return float(fpr)


def graded_mean(scores: Tensor, grades: Tensor, n_grades: int, spec: GradedSpec) -> float:
    """The mean of ``graded_values`` over the thresholds that have one.

    NaN if a score is NaN; a UserError if all rows have the same grade.
    """
    check_two_grades(grades, "rows to be scored", "a split needs rows of at least two grades")
    return float(graded_values(scores, grades, n_grades, spec).nanmean())


def check_two_grades(grades: Tensor, what: str, hint: str) -> None:
    """A UserError unless the rows have two different grades; -1 is an unknown grade."""
    known = grades[grades >= 0]
    if len(known) == 0 or bool((known == known[0]).all()):
        raise UserError(f"the {what} all have the same grade, or no grade", hint=hint)


def graded_values(scores: Tensor, grades: Tensor, n_grades: int, spec: GradedSpec) -> Tensor:
    """The metric at each threshold; [G - 1], NaN if a side is empty or a score is NaN.

    ``order`` has one value for all of them; [1]. Rows of unknown grade, -1, are left out.
    """
    if bool(scores.isnan().any()):
        scores, grades = scores[:0], grades[:0]
    return values_of(passed_by_grade(scores, grades, n_grades), [spec])[0]


def passed_by_grade(scores: Tensor, grades: Tensor, n_grades: int) -> Tensor:
    """How many rows of each grade pass each cut, as in ``Curve``; [G, J + 1] int64."""
    known = grades >= 0
    ordered, places = scores[known].sort(descending=True)
    of_grade = grades[known][places] == torch.arange(n_grades, device=grades.device)[:, None]
    return passing(of_grade.long(), run_ends(ordered))


def values_of(passed: Tensor, specs: Sequence[GradedSpec]) -> list[Tensor]:
    """The values of each metric at the thresholds, from ``passed`` [G, ..., J + 1].

    They are [G - 1, ...], or [1, ...] for a metric with one value for all thresholds.
    """
    at_rate = {spec.name in _RATE_METRICS for spec in specs}
    sums = passed.cumsum(dim=0) if True in at_rate else passed[:1]
    curves = [Curve(sums[-1], negatives) for negatives in sums[:-1]]  # one per threshold
    pairs = count_pairs(passed) if False in at_rate else None
    return [_values(spec, curves, pairs) for spec in specs]


def _values(spec: GradedSpec, curves: Sequence[Curve], pairs: Pairs | None) -> Tensor:
    if spec.fpr is None:
        assert pairs is not None
        return _PAIR_METRICS[spec.name](pairs)
    return torch.stack([_RATE_METRICS[spec.name](curve, spec.fpr) for curve in curves])


def _rate(name: str, text: str) -> float:
    """The rate of ``fpr=.01``."""
    what, _, number = text.partition("=")
    try:
        fpr = float(number) if what.strip() == "fpr" and "_" not in number else None
    except ValueError:
        fpr = None
    if fpr is None:
        raise UserError(
            f"metric '{name}@{text}' needs fpr=RATE after the @", hint=f"write {name}@fpr=.01"
        )
    return check_fpr(fpr)


def _hint(name: str) -> str:
    near = get_close_matches(name.lower(), GRADED_METRICS, n=1)
    known = ", ".join(map(example, GRADED_METRICS))
    return f"{f'did you mean {example(near[0])}? ' if near else ''}the metrics are {known}"


def example(name: str) -> str:
    """How users write a metric."""
    return f"{name}@fpr=.01" if name in _RATE_METRICS else name
