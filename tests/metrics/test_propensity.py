"""Propensities and propensity-scored metrics equal their formulas and a loop."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankfold.errors import UserError
from rankfold.metrics import METRICS
from rankfold.metrics.judged import Judged, judge
from rankfold.metrics.propensity import (
    Propensity,
    inverse_propensity,
    parse_propensity,
    psn,
    psn_best,
    psp,
    psp_best,
)
from rankfold.types import Interactions

WEIGHTS = torch.tensor([1.5, 4.0, 2.0, 3.0])
TRUTH = Interactions(torch.tensor([0, 3]), torch.tensor([0, 1, 3]), None, 4)
LOG3 = math.log2(3)


def test_propensities_match_the_formula() -> None:
    c = (math.log(1000) - 1) * (1.5 + 1) ** 0.55
    expected = [1 + c * (n + 1.5) ** -0.55 for n in (0, 1, 37)]
    actual = inverse_propensity(torch.tensor([0, 1, 37]), 1000, Propensity())
    assert actual.dtype == torch.float32
    assert actual.tolist() == pytest.approx(expected)


@pytest.mark.parametrize("n_queries", [0, 1, 2])
def test_too_few_queries_give_no_probability_above_one(n_queries: int) -> None:
    result = inverse_propensity(torch.tensor([0, 1, 2]), n_queries, Propensity(1.0, 0.01))
    assert result.tolist() == [1.0, 1.0, 1.0]


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 10**9), min_size=1),
    st.integers(0, 10**9),
    st.floats(0, 3),
    st.floats(0.01, 100),
)
def test_rarer_candidates_weigh_more(counts: list[int], n_queries: int, a: float, b: float) -> None:
    result = inverse_propensity(torch.tensor(sorted(counts)), n_queries, Propensity(a, b))
    assert result.isfinite().all()
    assert (result >= 1).all()
    assert (result.diff() <= 0).all()


def test_values_match_the_formulas() -> None:
    judged = judge(torch.tensor([[2, 0, 3]]), TRUTH, inverse_propensity=WEIGHTS)
    assert psp(judged, 2).item() == pytest.approx(1.5 / 2)
    assert psp(judged, 3).item() == pytest.approx((1.5 + 3) / 3)
    assert psp_best(judged, 2).item() == pytest.approx((4 + 3) / 2)
    discounts = 1 + 1 / LOG3
    assert psn(judged, 2).item() == pytest.approx(1.5 / LOG3 / discounts)
    assert psn_best(judged, 2).item() == pytest.approx((4 + 3 / LOG3) / discounts)
    assert psn(judged, 3).item() == pytest.approx((1.5 / LOG3 + 3 / 2) / (discounts + 1 / 2))


def test_missing_propensities_are_reported() -> None:
    for metric in (psp, psp_best, psn, psn_best):
        with pytest.raises(ValueError, match="inverse_propensity="):
            metric(judge(torch.tensor([[0]]), TRUTH), 1)


def test_a_k_beyond_the_ideal_is_refused() -> None:
    judged = judge(torch.tensor([[0, 1]]), TRUTH, inverse_propensity=WEIGHTS)
    for metric in (psp_best, psn, psn_best):
        with pytest.raises(ValueError, match=r"k must be at most 2.*got 3"):
            metric(judged, 3)


def test_equals_a_loop(any_case: st.SearchStrategy[Any], judge_case: Callable[..., Judged]) -> None:
    @settings(deadline=None)
    @given(any_case, st.randoms(use_true_random=False))
    def check(case: Any, random: Any) -> None:
        weights = [1 + 9 * random.random() for _ in range(case.n_candidates)]
        judged = judge_case(case, inverse_propensity=torch.tensor(weights))
        rows = zip(case.returned, case.truth, strict=True)
        loops = [_loop(returned, set(truth), weights, case.k) for returned, truth in rows]
        for place, metric in enumerate((psp, psp_best, psn, psn_best)):
            expected = torch.tensor([row[place] for row in loops], dtype=torch.float32)
            torch.testing.assert_close(metric(judged, case.k), expected)

    check()


def _loop(returned: list[int], truth: set[int], weights: list[float], k: int) -> tuple[float, ...]:
    """psp, psp_best, psn, psn_best of one query."""
    got = [weights[y] if y in truth else 0.0 for y in returned[:k]]
    best = sorted((weights[y] for y in truth), reverse=True)[:k]
    discount = sum(1 / math.log2(r + 2) for r in range(len(best))) or 1.0
    return (sum(got) / k, sum(best) / k, _dcg(got) / discount, _dcg(best) / discount)


def _dcg(gains: list[float]) -> float:
    return sum(gain / math.log2(r + 2) for r, gain in enumerate(gains))


def test_renaming_candidates_changes_nothing(
    any_case: st.SearchStrategy[Any], judge_case: Callable[..., Judged]
) -> None:
    @settings(deadline=None)
    @given(any_case, st.randoms(use_true_random=False))
    def check(case: Any, random: Any) -> None:
        names = random.sample(range(case.n_candidates), case.n_candidates)
        weights = torch.tensor([1 + 9 * random.random() for _ in names])
        renamed = case._replace(
            returned=[[names[y] for y in row] for row in case.returned],
            truth=[{names[y]: grade for y, grade in row.items()} for row in case.truth],
        )
        moved = torch.empty_like(weights)
        moved[torch.tensor(names)] = weights
        before = judge_case(case, inverse_propensity=weights)
        after = judge_case(renamed, inverse_propensity=moved)
        scored = [metric for metric in METRICS.values() if metric.reads == "propensity"]
        assert len(scored) == 4
        for scored_metric in scored:
            for metric in (scored_metric.value, scored_metric.best or scored_metric.value):
                torch.testing.assert_close(metric(after, case.k), metric(before, case.k))

    check()


def test_equal_propensities_cancel(
    any_case: st.SearchStrategy[Any], judge_case: Callable[..., Judged]
) -> None:
    """Psp is then hits divided by the largest possible number, whatever the propensity."""

    @settings(deadline=None)
    @given(any_case, st.floats(1, 50))
    def check(case: Any, weight: float) -> None:
        judged = judge_case(case, inverse_propensity=torch.full((case.n_candidates,), weight))
        rows = zip(case.returned, case.truth, strict=True)
        hits = sum(len(set(returned[: case.k]) & truth.keys()) for returned, truth in rows)
        most = sum(min(case.k, len(truth)) for truth in case.truth)
        if most > 0:
            result = psp(judged, case.k).sum() / psp_best(judged, case.k).sum()
            assert result.item() == pytest.approx(hits / most)

    check()


def test_a_and_b_are_parsed() -> None:
    assert parse_propensity("0.6,2.6") == Propensity(A=0.6, B=2.6)
    assert parse_propensity(" .5, .4") == (0.5, 0.4)


@pytest.mark.parametrize("text", ["", "1", "a,b", "1,2,3", "1;2", "1,"])
def test_other_text_gets_an_example(text: str) -> None:
    with pytest.raises(UserError, match="must be two numbers") as caught:
        parse_propensity(text)
    assert ".55,1.5" in caught.value.hint


@pytest.mark.parametrize("text", ["-1,1", "1,0", "1,-2", "nan,1", "1,nan", "inf,1", "1,inf"])
def test_impossible_values_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="propensity needs A of at least 0 and B above 0"):
        parse_propensity(text)
