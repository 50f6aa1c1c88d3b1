"""Metrics of ordered grades equal their formulas and plain loops; their names are parsed."""

import math
from fractions import Fraction
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankfold.errors import UserError
from rankfold.metrics import parse
from rankfold.metrics.calibration import calibration
from rankfold.metrics.graded import (
    GRADED_METRICS,
    GradedSpec,
    example,
    graded_mean,
    graded_values,
    parse_graded,
    passed_by_grade,
    values_of,
)
from rankfold.metrics.roc import Curve, cut, passing, run_ends, tpr

RATES = st.sampled_from([0.01, 0.05, 0.1, 0.2, 1 / 3, 0.5, 0.7, 0.9])
SCORES = st.sampled_from([-1.5, 0.0, 0.25, 0.5, 1.0, 3.0])  # few values, so many are equal

Rows = list[tuple[float, int]]  # score and grade


def rows(n_grades: int = 3, most: int = 24) -> st.SearchStrategy[Rows]:
    return st.lists(st.tuples(SCORES, st.integers(0, n_grades - 1)), min_size=1, max_size=most)


def tensors(some: Rows) -> tuple[Tensor, Tensor]:
    return torch.tensor([s for s, _ in some]), torch.tensor([g for _, g in some])


def exactly(fpr: float) -> Fraction:
    return Fraction(str(fpr)).limit_denominator(10**9)


# ---------------------------------------------------------------------------------- by loops


def rates_above(t: float, some: Rows, k: int) -> tuple[Fraction, Fraction]:
    """The false- and the true-positive rate of the cut t."""
    negatives = [s for s, g in some if g <= k]
    positives = [s for s, g in some if g > k]
    passed = [Fraction(sum(s > t for s in side), len(side)) for side in (negatives, positives)]
    return passed[0], passed[1]


def strict_loop(some: Rows, k: int, fpr: float) -> float:
    points = [rates_above(t, some, k) for t in {s for s, _ in some}]
    return float(max(tp for fp, tp in points if fp <= exactly(fpr)))


def closest_loop(some: Rows, k: int, fpr: float) -> float:
    best, value = None, Fraction(0)
    for t in sorted((s for s, _ in some), reverse=True):
        fp, tp = rates_above(t, some, k)
        distance = abs(fp - exactly(fpr))
        if best is None or distance < best:
            best, value = distance, tp
    return float(value)


def area_loop(some: Rows, k: int, fpr: float) -> float:
    """Trapezoids between the points of the curve, the last one cut at fpr."""
    cuts = [math.inf, *sorted({s for s, _ in some}, reverse=True), -math.inf]
    points = [rates_above(t, some, k) for t in cuts]
    area = 0.0
    for (x0, y0), (x1, y1) in pairwise(points):
        if x0 >= fpr or x1 == x0:
            continue
        end = min(float(x1), fpr)
        y_end = y0 + (y1 - y0) * (end - x0) / (x1 - x0)
        area += (end - x0) * (y0 + y_end) / 2
    return area


def mcclish_loop(some: Rows, k: int, fpr: float) -> float:
    least, most = fpr**2 / 2, fpr
    return 0.5 * (1 + (area_loop(some, k, fpr) - least) / (most - least))


def raw_loop(some: Rows, k: int, fpr: float) -> float:
    return area_loop(some, k, fpr) / fpr


def auc_loop(some: Rows, k: int, _fpr: float) -> float:
    pairs = [(p, n) for p, g in some if g > k for n, h in some if h <= k]
    return sum((p > n) + (p == n) / 2 for p, n in pairs) / len(pairs)


def order_loop(some: Rows) -> float:
    pairs = [(p, n) for p, g in some for n, h in some if g > h]
    return sum((p > n) + (p == n) / 2 for p, n in pairs) / len(pairs)


LOOPS = {
    "tpr": strict_loop,
    "tpr-closest": closest_loop,
    "pauc": mcclish_loop,
    "pauc-raw": raw_loop,
    "auc": auc_loop,
}


def spec_of(name: str, fpr: float) -> GradedSpec:
    return GradedSpec(name, fpr if "@" in example(name) else None)


def test_every_metric_has_a_loop() -> None:
    assert {*LOOPS, "order"} == set(GRADED_METRICS)


@pytest.mark.parametrize("name", LOOPS)
def test_equals_the_loop_at_every_threshold(name: str) -> None:
    @settings(deadline=None)
    @given(rows(), RATES)
    def check(some: Rows, fpr: float) -> None:
        values = graded_values(*tensors(some), 3, spec_of(name, fpr))
        assert values.shape == (2,)
        for k in range(2):
            if len({g > k for _, g in some}) < 2:
                assert math.isnan(values[k])
            else:
                assert values[k].item() == pytest.approx(LOOPS[name](some, k, fpr), abs=1e-12)

    check()


@settings(deadline=None)
@given(rows(4))
def test_order_equals_the_loop(some: Rows) -> None:
    values = graded_values(*tensors(some), 4, GradedSpec("order", None))
    assert values.shape == (1,)
    if len({g for _, g in some}) < 2:
        assert math.isnan(values[0])
    else:
        assert values.item() == pytest.approx(order_loop(some))


def roc(scores: Tensor, positive: Tensor) -> Curve:
    """The curve of ``scores`` [n]; ``positive`` [n] bool marks the rows that should pass."""
    order = scores.argsort(descending=True)
    ends = run_ends(scores[order])
    negative = (~positive[order]).long()
    return Curve(passing(torch.ones_like(negative), ends), passing(negative, ends))


@settings(deadline=None)
@given(rows(), RATES)
def test_the_cut_follows_the_strict_rule(some: Rows, fpr: float) -> None:
    scores, grades = tensors(some)
    positive = grades > 0
    if bool(positive.all()):
        return
    negatives = sorted(scores[~positive].tolist(), reverse=True)
    allowed = math.floor(exactly(fpr) * len(negatives))
    result = cut(scores[~positive], allowed)
    assert result.item() == negatives[allowed]
    if bool(positive.any()):
        passed = (scores > result)[positive].double().mean()
        assert passed.item() == pytest.approx(tpr(roc(scores, positive), fpr).item())


# ---------------------------------------------------------------------------------- by hand


def test_a_rate_is_read_as_a_decimal() -> None:
    """.1 of 30 negatives are 3, although .1 * 3 > .3 and .29 * 100 < 29 in floating point."""
    for n, fpr, allowed in ((30, 0.1, 3), (100, 0.29, 29), (1000, 0.001, 1), (99, 0.01, 0)):
        scores = torch.arange(2 * n).float()  # a positive between any two negatives
        positive = torch.arange(2 * n) % 2 == 0
        assert tpr(roc(scores, positive), fpr).item() == allowed / n


def test_strict_and_closest_differ() -> None:
    """One of three negatives is nearer to .3 than none; the strict rule allows none."""
    scores = torch.tensor([5.0, 4.0, 4.0, 2.0, 1.0])
    grades = torch.tensor([1, 0, 1, 0, 0])
    assert graded_mean(scores, grades, 2, parse_graded("tpr@fpr=.3")) == 0.5
    assert graded_mean(scores, grades, 2, parse_graded("tpr-closest@fpr=.3")) == 1.0


def test_closest_can_be_below_strict() -> None:
    """The first of equally near cuts is the highest score, which no positive passes."""
    scores = torch.tensor([3.0, 2.0, 1.0])
    grades = torch.tensor([1, 1, 0])
    assert graded_mean(scores, grades, 2, parse_graded("tpr-closest@fpr=.1")) == 0.0
    assert graded_mean(scores, grades, 2, parse_graded("tpr@fpr=.1")) == 1.0


@pytest.mark.parametrize("fpr", [0.01, 0.1, 0.5])
def test_equal_scores_are_chance(fpr: float) -> None:
    scores, grades = torch.zeros(50), torch.arange(50) % 3
    values = {name: graded_mean(scores, grades, 3, spec_of(name, fpr)) for name in GRADED_METRICS}
    expected = {"tpr": 0, "tpr-closest": 0, "pauc": 0.5, "pauc-raw": fpr / 2, "auc": 0.5}
    assert values == pytest.approx({**expected, "order": 0.5})


def test_the_mean_omits_thresholds_with_one_side() -> None:
    scores, grades = torch.tensor([1.0, 2.0, 0.0, 5.0]), torch.tensor([0, 0, 2, 2])
    values = graded_values(scores, grades, 4, GradedSpec("auc", None))
    assert values[:2].tolist() == [0.5, 0.5]
    assert math.isnan(values[2])
    assert graded_mean(scores, grades, 4, GradedSpec("auc", None)) == 0.5


def test_rows_without_a_grade_are_left_out() -> None:
    scores, grades = torch.tensor([1.0, 9.0, 2.0, -9.0]), torch.tensor([0, -1, 1, -1])
    for name in GRADED_METRICS:
        spec = spec_of(name, 0.5)
        assert graded_mean(scores, grades, 2, spec) == graded_mean(
            scores[[0, 2]], grades[[0, 2]], 2, spec
        )


def test_a_nan_score_gives_nan() -> None:
    scores, grades = torch.tensor([1.0, math.nan, 2.0]), torch.tensor([0, 1, 1])
    for name in GRADED_METRICS:
        assert math.isnan(graded_mean(scores, grades, 2, spec_of(name, 0.5)))


def test_a_single_grade_is_refused() -> None:
    for grades in ([1, 1], [-1, 1], []):
        with pytest.raises(UserError, match="all have the same grade") as caught:
            graded_mean(torch.zeros(len(grades)), torch.tensor(grades), 3, parse_graded("auc"))
        assert caught.value.hint


def test_many_curves_at_once_equal_each_alone() -> None:
    rng = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 9, (60,), generator=rng).float()
    grades = torch.randint(0, 4, (5, 60), generator=rng)
    specs = [spec_of(name, 0.2) for name in GRADED_METRICS]
    passed = [passed_by_grade(scores, some, 4) for some in grades]
    together = values_of(torch.stack(passed, dim=1), specs)
    for number, some in enumerate(passed):
        for one, all_ in zip(values_of(some, specs), together, strict=True):
            torch.testing.assert_close(one, all_[:, number])


# ---------------------------------------------------------------------------------- calibration


def test_bins_hold_equal_numbers_of_rows() -> None:
    scores = torch.tensor([0.1, 0.9, 0.4, 0.2, 0.8, 0.5])
    result = calibration(scores, torch.tensor([0, 1, 1, 0, 1, 0]).bool(), 3)
    torch.testing.assert_close(result.scores.float(), torch.tensor([0.15, 0.45, 0.85]))
    assert result.shares.tolist() == [0, 0.5, 1]
    assert result.counts.tolist() == [2, 2, 2]


@settings(deadline=None)
@given(rows(2), st.integers(1, 8))
def test_equal_scores_share_a_bin_and_no_row_is_lost(some: Rows, bins: int) -> None:
    scores, grades = tensors(some)
    result = calibration(scores, grades > 0, bins)
    assert result.counts.sum() == len(some)
    assert len(result.counts) <= bins
    assert (result.scores.diff() > 0).all()  # so no score is in two bins
    assert (result.shares * result.counts).sum().item() == pytest.approx(int(grades.sum()))
    assert (result.scores * result.counts).sum().item() == pytest.approx(scores.sum().item())


# ---------------------------------------------------------------------------------- names


@pytest.mark.parametrize("name", GRADED_METRICS)
def test_every_name_round_trips(name: str) -> None:
    assert str(parse_graded(example(name))) == example(name)
    assert parse_graded(f" {example(name)} ").name == name


def test_a_rate_may_be_written_in_many_ways() -> None:
    for text in ("tpr@fpr=.01", "tpr@fpr=0.01", "tpr@fpr=1e-2", "tpr@fpr=.010"):
        assert parse_graded(text) == GradedSpec("tpr", 0.01)
        assert str(parse_graded(text)) == "tpr@fpr=.01"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "ndcg@10",
            "graded rows have no metric 'ndcg'",
            "the metrics are tpr@fpr=.01, tpr-closest",
        ),
        ("tprr@fpr=.1", "graded rows have no metric 'tprr'", "did you mean tpr@fpr=.01?"),
        ("", "graded rows have no metric ''", "order"),
        ("tpr", "needs a false-positive rate", "write tpr@fpr=.01"),
        ("pauc@10", "needs fpr=RATE after the @", "write pauc@fpr=.01"),
        ("pauc@fpr=x", "needs fpr=RATE after the @", "write pauc@fpr=.01"),
        ("tpr@fpr=0", "above 0 and below 1, got 0", ".01"),
        ("tpr@fpr=1", "above 0 and below 1, got 1", ".01"),
        ("tpr@fpr=-1", "above 0 and below 1, got -1", ".01"),
        ("tpr@fpr=nan", "above 0 and below 1, got nan", ".01"),
        ("auc@fpr=.1", "'auc' takes no rate", "pauc@fpr=.1"),
    ],
)
def test_other_names_are_refused_with_a_hint(text: str, message: str, hint: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        parse_graded(text)
    assert hint in caught.value.hint


def test_metrics_of_pairs_refuse_graded_names() -> None:
    with pytest.raises(UserError, match="there is no metric 'tpr'") as caught:
        parse("tpr@fpr=.01")
    assert "is for graded rows" in caught.value.hint
    assert "ndcg@k" in caught.value.hint


@settings(deadline=None)
@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for tried in (text, f"tpr@{text}", f"tpr@fpr={text}"):
        try:
            spec = parse_graded(tried)
        except UserError as error:
            assert error.hint  # noqa: PT017
        else:
            assert parse_graded(str(spec)) == spec
